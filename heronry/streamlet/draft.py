"""Drafts of programs: steps and groupings as the user adds them, before they are named and checked.

Theory of operation. ``Builder`` owns one ``ProgramDraft``; its streamlets add steps to it. A step refers to its inputs
by number, since names are assigned last: given names stay, the others are made of what the steps do. ``key_by`` and
``window`` are not steps. A ``ReducerDraft`` holds them until a reducer uses them, and ``to_program`` reports those
without a reducer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heronry.api.errors import TopologyError
from heronry.streamlet.check import problems_of
from heronry.streamlet.extract import WHOLE, Extractor, as_extractor
from heronry.streamlet.monoid import Monoid
from heronry.streamlet.process import Handlers
from heronry.streamlet.program import EventTime, Program, ReduceStep, Ref, SourceStep, Step, UnionStep, Windowing
from heronry.streamlet.windows import MS_PER_UNIT, Window, whole_ms

if TYPE_CHECKING:
    from heron_runtime.model.topology import TopologyDefinition

DraftRef = tuple[int, int]  # (number of a step draft, its output)


@dataclass
class StepDraft:
    """A step without a final name. ``fields`` are the arguments that only its class has."""

    cls: type[Step]
    name: str | None
    base: str
    inputs: list[DraftRef]
    fields: dict[str, Any]


@dataclass
class GroupingDraft:
    """A ``key_by`` or ``window``, and whether a reducer uses it."""

    kind: str
    name: str
    used: bool = False


@dataclass(frozen=True)
class KeyDraft:
    """The key of a reducer to come."""

    extractor: Extractor
    grouping: GroupingDraft


@dataclass(frozen=True)
class WindowDraft:
    """The windows of a reducer to come."""

    windowing: Windowing
    grouping: GroupingDraft


@dataclass(frozen=True)
class LateOutput:
    """Late data of an operator that consists of several steps: its output, and the step that converts its rows."""

    ref: DraftRef
    step: type[Step]
    function: Callable[[Any], Any]


class SubmittableProgram(Program):
    """A program that ``heron submit`` accepts in a variable, like a builder."""

    def definition(self, name: str | None = None, variable: str = "") -> TopologyDefinition:
        """Return the topology definition; see ``Builder.definition``."""
        from heronry.streamlet.online.compile import compile_program  # writing a program needs no bolts

        return compile_program(self, name, variable)


class ProgramDraft:
    """All steps and groupings of a program, and the problems found while they were added."""

    def __init__(self, name: str | None, config: Mapping[str, Any]) -> None:
        self.name = name
        self.config = dict(config)
        self._steps: list[StepDraft] = []
        self._groupings: list[GroupingDraft] = []
        self._problems: list[str] = []

    def add_step(
        self, cls: type[Step], name: str | None, base: str, inputs: list[DraftRef], fields: dict[str, Any]
    ) -> DraftRef:
        """Add a step and return its first output.

        Args:
            cls: Class of the step.
            name: The name given by the user.
            base: Name if there is none; a number is appended where it is in use.
            inputs: Outputs of other steps that it reads.
            fields: Arguments of ``cls`` besides name and inputs.
        """
        self._steps.append(StepDraft(cls, name, base, inputs, fields))
        return len(self._steps) - 1, 0

    def add_grouping(self, kind: str, name: str | None) -> GroupingDraft:
        """Add a ``key_by`` or ``window`` that a reducer must use."""
        number = 1 + sum(grouping.kind == kind for grouping in self._groupings)
        grouping = GroupingDraft(kind, name or f"{kind}_{number}")
        self._groupings.append(grouping)
        return grouping

    def make_extractor(self, given: Any, where: str) -> Extractor:
        """Return the extractor for a field, place or function. Records a problem for another object."""
        try:
            return as_extractor(given)
        except TypeError as error:
            self._problems.append(f"step {where!r}: {error}")
            return WHOLE

    def make_event_time(self, given: Any, unit: str, where: str) -> EventTime | None:
        """Return where event times are, None if not given. Records problems."""
        if given is None:
            return None
        if unit not in MS_PER_UNIT:
            self._problems.append(f"step {where!r}: unit is {unit!r}; write 's' or 'ms'")
        return EventTime(self.make_extractor(given, where), unit)

    def step(self, ref: DraftRef) -> StepDraft:
        """Return the draft of a step."""
        return self._steps[ref[0]]

    def step_name(self, ref: DraftRef) -> str:
        """Return the name of a step for messages: as given, else its base."""
        draft = self._steps[ref[0]]
        return draft.name or draft.base

    def to_program(self) -> SubmittableProgram:
        """Return the checked program as it is now. Raises TopologyError with every problem."""
        names = self._step_names()
        steps = tuple(
            draft.cls(name=name, **_inputs(draft, names), **draft.fields)
            for name, draft in zip(names, self._steps, strict=True)
        )
        program = SubmittableProgram(self.name or "program", steps, tuple(self.config.items()))
        unused = [
            f"step {g.name!r}: {g.kind} is followed by no reducer; add count_by_key(), sum_by_key() or reduce_by_key()"
            for g in self._groupings
            if not g.used
        ]
        problems = [*self._problems, *unused, *problems_of(program)]
        if problems:
            raise TopologyError(list(dict.fromkeys(problems)), self.name or "", f"program {program.name!r}")
        return program

    def _step_names(self) -> list[str]:
        """Return the given names, and numbered base names for the other steps."""
        taken = {draft.name for draft in self._steps if draft.name is not None}
        names = []
        for draft in self._steps:
            name = draft.name
            if name is None:
                name, number = draft.base, 1
                while name in taken:
                    number += 1
                    name = f"{draft.base}_{number}"
                taken.add(name)
            names.append(name)
        return names


def _inputs(draft: StepDraft, names: Sequence[str]) -> dict[str, Any]:
    refs = tuple(Ref(names[number], output) for number, output in draft.inputs)
    if draft.cls is SourceStep:
        return {}
    return {"inputs": refs} if draft.cls is UnionStep else {"input": refs[0]}


@dataclass(frozen=True)
class ReducerDraft:
    """A stream with the key and windows of the reducer that will read it."""

    draft: ProgramDraft
    ref: DraftRef
    key: KeyDraft | None = None
    window: WindowDraft | None = None

    def with_key(self, key: Any, name: str | None) -> ReducerDraft:
        """Return the same with a key. Raises TopologyError if it has one."""
        if self.key is not None:
            raise TopologyError(
                f"step {name or 'key_by'!r}: {self.key.grouping.name!r} has set the key already; keep one of the two"
            )
        grouping = self.draft.add_grouping("key_by", name)
        chosen = KeyDraft(self.draft.make_extractor(key, grouping.name), grouping)
        return ReducerDraft(self.draft, self.ref, chosen, self.window)

    def with_window(
        self, window: Any, event_time: Any, allowed_lateness: Any, unit: str, name: str | None
    ) -> ReducerDraft:
        """Return the same with windows. Raises TopologyError if it has some, or for an invalid argument."""
        if self.window is not None:
            raise TopologyError(
                f"step {name or 'window'!r}: {self.window.grouping.name!r} has set the window already; keep one of "
                "the two"
            )
        grouping = self.draft.add_grouping("window", name)
        if not isinstance(window, Window):
            raise TopologyError(
                f"step {grouping.name!r}: {window!r} is not a window; write tumbling(60), sliding(60, 10) or "
                "session(30)"
            )
        time = self.draft.make_event_time(event_time, unit, grouping.name)
        lateness_ms = whole_ms(allowed_lateness, f"step {grouping.name!r}: allowed_lateness")
        chosen = WindowDraft(Windowing(window, time, lateness_ms), grouping)
        return ReducerDraft(self.draft, self.ref, self.key, chosen)

    def reduce(
        self,
        base: str,
        monoid: Monoid[Any, Any],
        value: Any = None,
        key: Any = None,
        updates: bool = True,
        name: str | None = None,
        parallelism: int | None = None,
        process: Handlers | None = None,
    ) -> DraftRef:
        """Add the reducer and return its output. Raises TopologyError without a key, or with two."""
        where, chosen = name or base, self.key
        if key is not None:
            if chosen is not None:
                raise TopologyError(
                    f"step {where!r}: key= and key_by({chosen.grouping.name!r}) both set the key; keep one"
                )
            chosen = KeyDraft(self.draft.make_extractor(key, where), GroupingDraft("key_by", where))
        if chosen is None:
            raise TopologyError(
                f"step {where!r} (after {self.draft.step_name(self.ref)!r}): no key; put key_by(…) before it, "
                "or give it key=…"
            )
        self.mark_used(chosen)
        fields = {
            "key": chosen.extractor,
            "value": self.draft.make_extractor(value, where),
            "monoid": monoid,
            "windowing": self.window.windowing if self.window else None,
            "updates": bool(updates),
            "parallelism": parallelism,
            "key_step": chosen.grouping.name,
            "window_step": self.window.grouping.name if self.window else "",
            "process": process,
        }
        return self.draft.add_step(ReduceStep, name, base, [self.ref], fields)

    def mark_used(self, key: KeyDraft | None) -> None:
        """Record that a reducer uses this key and these windows."""
        for part in (key, self.window):
            if part is not None:
                part.grouping.used = True
