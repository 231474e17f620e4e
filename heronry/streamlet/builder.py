"""``Builder``: what the user writes. It only records; ``build`` names the steps, checks them and makes the ``Program``.

    words = Builder("words")
    (words.source(files("/data/text", "text"))
          .flat_map(str.split)
          .key_by()
          .count_by_key()
          .sink(to_files("/data/counts")))

Left in a module-level variable, ``heron submit local FILE words`` finds it. A streamlet may be read by several steps;
each gets every record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heronry.api.errors import TopologyError
from heronry.streamlet.check import problems_of
from heronry.streamlet.extract import WHOLE, Extractor, as_extractor
from heronry.streamlet.program import EventTime, Program, Ref, SourceStep, Step, UnionStep
from heronry.streamlet.stream import OutputRef, Pending, Streamlet, listed
from heronry.streamlet.windows import MS_PER_UNIT

if TYPE_CHECKING:
    from heron_runtime.model.topology import TopologyDefinition


@dataclass
class _Draft:
    """A step before it has a name. ``fields`` are its own arguments."""

    cls: type[Step]
    name: str | None
    base: str
    inputs: list[OutputRef]
    fields: dict[str, Any]


class _Built(Program):
    """A program that ``heron submit`` finds in a variable, as it finds a builder."""

    def definition(self, name: str | None = None, variable: str = "") -> TopologyDefinition:
        """See ``Builder.definition``."""
        return _definition(self, name, variable)


def _definition(program: Program, name: str | None, variable: str) -> TopologyDefinition:
    from heronry.streamlet.online.compile import compile_program  # whoever writes a program needs no bolts

    return compile_program(program, name, variable)


class Builder:
    """A program to be. ``config`` is the topology's configuration, for the online engine."""

    def __init__(self, name: str | None = None, config: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self._config = dict(config or {})
        self._drafts: list[_Draft] = []
        self._pending: list[Pending] = []
        self._problems: list[str] = []

    def source(
        self,
        source: Any,
        event_time: Any = None,
        unit: str = "s",
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet:
        """Records of ``files(...)`` or ``sequence(...)``, or of a list (for tests).

        ``event_time``: field, place or function that gives each record's event time; ``unit`` is what a number counts.
        """
        source = listed(source)
        time = self._time(event_time, unit, name or "source")
        fields = {"source": source, "event_time": time, "parallelism": parallelism}
        return self._add(SourceStep, name, "source", [], fields)

    def set_config(self, config: Mapping[str, Any]) -> None:
        """Lay these keys over the topology's configuration."""
        self._config.update(config)

    def build(self) -> Program:
        """Return the checked program as it stands now. Raises TopologyError with every fault, each naming its step."""
        names = _names(self._drafts)
        steps = tuple(
            draft.cls(name=name, **_inputs(draft, names), **draft.fields)
            for name, draft in zip(names, self._drafts, strict=True)
        )
        program = _Built(self.name or "program", steps, tuple(self._config.items()))
        dangling = [
            f"step {p.name!r}: {p.kind} is followed by no reducer; add count_by_key(), sum_by_key() or reduce_by_key()"
            for p in self._pending
            if not p.used
        ]
        problems = [*self._problems, *dangling, *problems_of(program)]
        if problems:
            raise TopologyError(list(dict.fromkeys(problems)), self.name or "", f"program {program.name!r}")
        return program

    def definition(self, name: str | None = None, variable: str = "") -> TopologyDefinition:
        """The topology the program is online; ``heron submit`` asks for it. Raises TopologyError.

        ``variable``: where the builder stands, ``module:variable``; its tasks import it from there.
        """
        return _definition(self.build(), name, variable)

    # Building.

    def _add(
        self, cls: type[Step], name: str | None, base: str, inputs: list[OutputRef], fields: dict[str, Any]
    ) -> Streamlet:
        self._drafts.append(_Draft(cls, name, base, inputs, fields))
        return Streamlet(self, (len(self._drafts) - 1, 0))

    def _extractor(self, given: Any, where: str) -> Extractor:
        try:
            return as_extractor(given)
        except TypeError as error:
            self._problems.append(f"step {where!r}: {error}")
            return WHOLE

    def _time(self, given: Any, unit: str, where: str) -> EventTime | None:
        if given is None:
            return None
        if unit not in MS_PER_UNIT:
            self._problems.append(f"step {where!r}: unit is {unit!r}; write 's' or 'ms'")
        return EventTime(self._extractor(given, where), unit)

    def _hold(self, kind: str, name: str | None) -> Pending:
        number = 1 + sum(p.kind == kind for p in self._pending)
        pending = Pending(kind, name or f"{kind}_{number}")
        self._pending.append(pending)
        return pending

    def _step_name(self, place: OutputRef) -> str:
        draft = self._drafts[place[0]]
        return draft.name or draft.base


def _names(drafts: Sequence[_Draft]) -> list[str]:
    """The users' names as they are; the others by what they do, numbered where that is not unique."""
    taken = {draft.name for draft in drafts if draft.name is not None}
    names = []
    for draft in drafts:
        name = draft.name
        if name is None:
            name, number = draft.base, 1
            while name in taken:
                number += 1
                name = f"{draft.base}_{number}"
            taken.add(name)
        names.append(name)
    return names


def _inputs(draft: _Draft, names: Sequence[str]) -> dict[str, Any]:
    refs = tuple(Ref(names[number], output) for number, output in draft.inputs)
    if draft.cls is SourceStep:
        return {}
    return {"inputs": refs} if draft.cls is UnionStep else {"input": refs[0]}
