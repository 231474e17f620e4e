"""Builder of programs.

    words = Builder("words")
    (words.source(files("/data/text", "text"))
          .flat_map(str.split)
          .key_by()
          .count_by_key()
          .sink(to_files("/data/counts")))

``heron submit local FILE words`` finds the builder in a variable at the top level of the module. Several steps may read
one streamlet; each receives every record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from heronry.streamlet.draft import ProgramDraft
from heronry.streamlet.endpoints import FileSource, SequenceSource
from heronry.streamlet.extract import Selector
from heronry.streamlet.program import Program, SourceStep
from heronry.streamlet.servers import ServerSource
from heronry.streamlet.stream import Streamlet, as_source

if TYPE_CHECKING:
    from heron_runtime.model.topology import TopologyDefinition

T = TypeVar("T")


class Builder:
    """Builder of a program.

    Args:
        name: Name of the program, and of its topology.
        config: Configuration of the topology.

    Examples:
        >>> from heronry.streamlet import Builder, collect
        >>> from heronry.streamlet.reference import run
        >>> builder = Builder("words")
        >>> lines = builder.source(["to be", "or not to be"])
        >>> counts = lines.flat_map(str.split).key_by().count_by_key()
        >>> _ = counts.sink(collect())
        >>> [tuple(count) for count in run(builder.build())["collect"]]
        [('be', 2), ('or', 1), ('to', 2), ('not', 1)]
    """

    def __init__(self, name: str | None = None, config: Mapping[str, Any] | None = None) -> None:
        self._draft = ProgramDraft(name, config or {})

    @property
    def name(self) -> str | None:
        """Name of the program."""
        return self._draft.name

    @overload
    def source(
        self,
        source: FileSource[T] | SequenceSource[T] | Sequence[T],
        event_time: Selector[T] = None,
        unit: str = "s",
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[T]: ...
    @overload
    def source(
        self,
        source: ServerSource,
        event_time: Selector[dict[str, Any]] = None,
        unit: str = "s",
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[dict[str, Any]]: ...
    def source(
        self,
        source: Any,
        event_time: Any = None,
        unit: str = "s",
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[Any]:
        """Add a source and return its records.

        Args:
            source: ``files(…)``, ``sequence(…)``, a source in a server such as ``kafka(…)``, or a list.
            event_time: Field, place or function that gives the event time of a record.
            unit: Unit of event times that are numbers: "s" or "ms" since 1970 UTC.
            name: Name of the step.
            parallelism: Number of tasks.
        """
        fields = {
            "source": as_source(source),
            "event_time": self._draft.make_event_time(event_time, unit, name or "source"),
            "parallelism": parallelism,
        }
        return Streamlet(self._draft, self._draft.add_step(SourceStep, name, "source", [], fields))

    def set_config(self, config: Mapping[str, Any]) -> None:
        """Set keys of the topology's configuration."""
        self._draft.config.update(config)

    def build(self) -> Program:
        """Return the checked program as it is now.

        Raises:
            TopologyError: The program has problems; each names its step.
        """
        return self._draft.to_program()

    def definition(self, name: str | None = None, variable: str = "") -> TopologyDefinition:
        """Return the definition of the program's topology; ``heron submit`` calls this.

        Args:
            name: Name of the topology. Default: the name of the program.
            variable: Variable that holds the builder, ``module:variable``; the tasks import it.

        Raises:
            TopologyError: The program has problems.
        """
        return self._draft.to_program().definition(name, variable)
