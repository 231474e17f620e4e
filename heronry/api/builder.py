"""Builder of topologies, for graphs that a program computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heron_runtime.model.topology import TopologyDefinition
from heronry.api.assemble import TopologyDraft, build_definition, check_draft
from heronry.api.errors import TopologyError
from heronry.api.spec import ComponentDeclaration, Inputs, Stream


class TopologyBuilder:
    """Builder of a topology. ``heron submit`` finds it in a variable at the top level of a module.

    Inputs name components by the declaration that ``add_spout`` or ``add_bolt`` returned, or by name.
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self._components: list[ComponentDeclaration] = []
        self._config: dict[str, Any] = {}

    def add_spout(
        self,
        name: str,
        spout_class: type,
        par: int | None = None,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> ComponentDeclaration:
        """Add a spout with ``par`` tasks and return its declaration."""
        return self.add_spec(ComponentDeclaration(spout_class, name, par, None, config, optional_outputs))

    def add_bolt(
        self,
        name: str,
        bolt_class: type,
        par: int | None = None,
        inputs: Inputs | None = None,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> ComponentDeclaration:
        """Add a bolt with ``par`` tasks and return its declaration.

        Args:
            name: Name of the component.
            bolt_class: Class of the bolt.
            par: Number of tasks.
            inputs: Streams that it reads: a mapping to groupings, or a sequence (shuffled).
            config: Configuration of the component.
            optional_outputs: Streams in addition to the outputs of the class.
        """
        return self.add_spec(ComponentDeclaration(bolt_class, name, par, inputs, config, optional_outputs))

    def add_spec(self, *specs: ComponentDeclaration) -> ComponentDeclaration:
        """Add declarations with names, such as ``WordSpout.spec(name="words")``. Returns the last one."""
        if not specs:
            raise TypeError("add_spec needs at least one spec")
        for spec in specs:
            if not isinstance(spec, ComponentDeclaration):
                raise TypeError(f"add_spec takes what SomeSpout.spec(name=...) returns, not {spec!r}")
            if not spec.name:
                raise TopologyError(f"{spec!r} has no name; write spec(name='…')", self.name or "")
            self._components.append(spec)
        return specs[-1]

    def set_config(self, config: Mapping[str, Any]) -> None:
        """Set keys of the configuration."""
        self._config.update(config)

    def build(self) -> TopologyBuilder:
        """Check the topology and return the builder. Raises TopologyError."""
        check_draft(self._draft(self.name or "topology"))
        return self

    def definition(self, name: str | None = None) -> TopologyDefinition:
        """Return the checked definition, with a new id.

        Args:
            name: Name that overrides that of the builder.

        Raises:
            TopologyError: The topology has problems.
        """
        chosen = name or self.name
        if not chosen:
            raise TopologyError("the topology has no name; write TopologyBuilder('…'), or give one to definition()")
        return build_definition(self._draft(chosen))

    def _draft(self, name: str) -> TopologyDraft:
        return TopologyDraft(name, [(spec.name or "", spec) for spec in self._components], self._config)
