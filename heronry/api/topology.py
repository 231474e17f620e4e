"""Topologies as class bodies.

    class WordCount(Topology):
        config = {Config.TOPOLOGY_RELIABILITY_MODE: Config.ATLEAST_ONCE}
        words = WordSpout.spec(par=2)
        count = CountBolt.spec(par=3, inputs={words: Grouping.fields("word")})

Components are named after their attributes. The class is checked when it is created, so that problems are reported on
import, by a test run or by ``heron submit``. The import has no other effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from heron_runtime.model.topology import TopologyDefinition
from heronry.api.assemble import TopologyDraft, build_definition, check_draft
from heronry.api.spec import ComponentDeclaration

_RESERVED = ("name", "config", "definition")


class Topology:
    """Base of topologies: derive from it and assign components.

    A subclass without components is a base for others and is not checked.

    Attributes:
        name: Name of the topology. Default: the name of the class.
        config: Configuration of the topology.

    Examples:
        >>> from heronry import BasicBolt, Grouping, Spout, Topology
        >>> class Words(Spout):
        ...     outputs = ["word"]
        ...     def next_tuple(self):
        ...         self.emit(["heron"])
        >>> class Count(BasicBolt):
        ...     def process(self, tup):
        ...         self.keyed[tup["word"]] = self.keyed.get(tup["word"], 0) + 1
        >>> class WordCount(Topology):
        ...     words = Words.spec()
        ...     count = Count.spec(par=2, inputs={words: Grouping.fields("word")})
        >>> WordCount.has_components()
        True
    """

    name: ClassVar[str | None] = None
    config: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        draft = cls._draft(None)
        if draft.components or draft.problems:
            check_draft(draft)

    @classmethod
    def definition(cls, name: str | None = None) -> TopologyDefinition:
        """Return the checked definition, with a new id.

        Args:
            name: Name that overrides that of the topology.

        Raises:
            TopologyError: The topology has problems.
        """
        return build_definition(cls._draft(name))

    @classmethod
    def has_components(cls) -> bool:
        """Return whether the class has components, and is not only a base for topologies."""
        return bool(cls._draft(None).components)

    @classmethod
    def _draft(cls, name: str | None) -> TopologyDraft:
        components: dict[str, ComponentDeclaration] = {}
        overridden: list[tuple[str, ComponentDeclaration]] = []
        problems: list[str] = []
        for base in reversed(cls.__mro__):
            for attribute, value in vars(base).items():
                if not isinstance(value, ComponentDeclaration):
                    if attribute in components:  # a subclass may take a component away: ``words = None``
                        overridden.append((attribute, components.pop(attribute)))
                    continue
                if attribute in _RESERVED:
                    problems.append(f"a component cannot be named {attribute!r}; rename the attribute")
                    continue
                twin = next(
                    (other for other, known in components.items() if known is value and other != attribute), None
                )
                if twin is not None:
                    problems.append(
                        f"{twin!r} and {attribute!r} are the same component; call spec() once for each of the two"
                    )
                    continue
                if attribute in components:
                    overridden.append((attribute, components[attribute]))
                components[attribute] = value
        named = [(value.name or attribute, value) for attribute, value in components.items()]
        aliases = [
            ((components[a].name if a in components else None) or value.name or a, value) for a, value in overridden
        ]
        config = {} if isinstance(cls.config, ComponentDeclaration) else cls.config
        own = cls.name if isinstance(cls.name, str) else None
        return TopologyDraft(name or own or cls.__name__, named, config, aliases, problems)
