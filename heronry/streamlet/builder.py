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

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heronry.api.errors import TopologyError
from heronry.streamlet.check import problems_of
from heronry.streamlet.endpoints import SequenceSource
from heronry.streamlet.extract import WHOLE, Extractor, as_extractor
from heronry.streamlet.monoid import Monoid, count, semigroup, sum_
from heronry.streamlet.program import (
    LATE,
    BranchStep,
    EventTime,
    FilterStep,
    FlatMapStep,
    LogStep,
    MapStep,
    Program,
    ReduceStep,
    Ref,
    SinkStep,
    SourceStep,
    Step,
    TapStep,
    UnionStep,
    Windowing,
)
from heronry.streamlet.windows import MS_PER_UNIT, Window, whole_ms

if TYPE_CHECKING:
    from heron_runtime.model.topology import TopologyDefinition

OutputRef = tuple[int, int]  # (number of a draft, its output)


@dataclass
class _Draft:
    """A step before it has a name. ``fields`` are its own arguments."""

    cls: type[Step]
    name: str | None
    base: str
    inputs: list[OutputRef]
    fields: dict[str, Any]


@dataclass
class _Pending:
    """A key_by or window that no reducer has taken up yet."""

    kind: str
    name: str
    used: bool = False


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
        self._pending: list[_Pending] = []
        self._problems: list[str] = []
        self._built: tuple[int, Program] | None = None

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
        if isinstance(source, list | tuple | range):
            source = SequenceSource(len(source), make=tuple(source).__getitem__)
        time = self._time(event_time, unit, name or "source")
        fields = {"source": source, "event_time": time, "parallelism": parallelism}
        return self._add(SourceStep, name, "source", [], fields)

    def set_config(self, config: Mapping[str, Any]) -> None:
        """Lay these keys over the topology's configuration."""
        self._config.update(config)
        self._built = None

    def build(self) -> Program:
        """The checked program. Raises TopologyError with every fault, each naming its step."""
        if self._built is None or self._built[0] != len(self._drafts):
            self._built = (len(self._drafts), self._build())
        return self._built[1]

    def definition(self, name: str | None = None, variable: str = "") -> TopologyDefinition:
        """The topology the program is online; ``heron submit`` asks for it. Raises TopologyError.

        ``variable``: where the builder stands, ``module:variable``; its tasks import it from there.
        """
        return _definition(self.build(), name, variable)

    # Building.

    def _build(self) -> Program:
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

    def _hold(self, kind: str, name: str | None) -> _Pending:
        number = 1 + sum(p.kind == kind for p in self._pending)
        pending = _Pending(kind, name or f"{kind}_{number}")
        self._pending.append(pending)
        return pending

    def _step_name(self, place: OutputRef) -> str:
        draft = self._drafts[place[0]]
        return draft.name or draft.base


class Streamlet:
    """A stream of records in a program to be. Every method that takes a function calls it with one record."""

    def __init__(
        self,
        builder: Builder,
        place: OutputRef,
        key: tuple[Extractor, _Pending] | None = None,
        window: tuple[Windowing, _Pending] | None = None,
    ) -> None:
        self._builder = builder
        self._place = place
        self._key = key
        self._window = window

    # Record by record.

    def map(self, function: Callable[[Any], Any], name: str | None = None, parallelism: int | None = None) -> Streamlet:
        """``function(record)``."""
        return self._function_step(MapStep, function, name, parallelism)

    def flat_map(
        self, function: Callable[[Any], Any], name: str | None = None, parallelism: int | None = None
    ) -> Streamlet:
        """Every element of ``function(record)``."""
        return self._function_step(FlatMapStep, function, name, parallelism)

    def filter(
        self, function: Callable[[Any], Any], name: str | None = None, parallelism: int | None = None
    ) -> Streamlet:
        """The records for which ``function(record)`` is true."""
        return self._function_step(FilterStep, function, name, parallelism)

    def tap(self, function: Callable[[Any], Any], name: str | None = None, parallelism: int | None = None) -> Streamlet:
        """The same records; ``function(record)`` is called for what it does."""
        return self._function_step(TapStep, function, name, parallelism)

    def log(self, level: str = "INFO", name: str | None = None, parallelism: int | None = None) -> Streamlet:
        """The same records; each is written to the task's log."""
        return self._then(LogStep, "log", name, {"level": level, "parallelism": parallelism})

    def branch(
        self, *predicates: Callable[[Any], Any], name: str | None = None, parallelism: int | None = None
    ) -> tuple[Streamlet, ...]:
        """One streamlet for each predicate and one more: a record goes to the first that is true, else to the last."""
        fields = {"predicates": predicates, "parallelism": parallelism}
        number, _ = self._then(BranchStep, "branch", name, fields)._place
        return tuple(Streamlet(self._builder, (number, output)) for output in range(len(predicates) + 1))

    def union(self, *others: Streamlet, name: str | None = None, parallelism: int | None = None) -> Streamlet:
        """The records of this streamlet and of the others."""
        for stream in (self, *others):
            if not isinstance(stream, Streamlet) or stream._builder is not self._builder:
                raise TopologyError(f"step {name or 'union'!r}: {stream!r} is no streamlet of this program")
            stream._refuse_pending("union", name)
        places = [stream._place for stream in (self, *others)]
        return self._builder._add(UnionStep, name, "union", places, {"parallelism": parallelism})

    def sink(self, sink: Any, name: str | None = None, parallelism: int | None = None) -> Streamlet:
        """Give every record to ``to_files(…)``, ``archive(…)``, ``view(…)`` or ``collect()``; returns ``self``."""
        self._then(SinkStep, str(getattr(sink, "kind", "sink")), name, {"sink": sink, "parallelism": parallelism})
        return self

    # By key.

    def key_by(self, key: Any = None, name: str | None = None) -> Streamlet:
        """The reducer that follows works by this key: a field, a place, a function; nothing: the whole record."""
        if self._key is not None:
            raise TopologyError(
                f"step {name or 'key_by'!r}: {self._key[1].name!r} has set the key already; keep one of the two"
            )
        pending = self._builder._hold("key_by", name)
        extractor = self._builder._extractor(key, pending.name)
        return Streamlet(self._builder, self._place, (extractor, pending), self._window)

    def window(
        self,
        window: Window,
        event_time: Any = None,
        allowed_lateness: Any = 0,
        unit: str = "s",
        name: str | None = None,
    ) -> Streamlet:
        """The reducer that follows works by windows of event time: ``tumbling(…)`` or ``sliding(…)``.

        ``event_time``: a field, place or function of the record as it is here; nothing: the source's.
        ``allowed_lateness``, in seconds: how much longer than its end a window stays open.
        """
        if self._window is not None:
            raise TopologyError(
                f"step {name or 'window'!r}: {self._window[1].name!r} has set the window already; keep one of the two"
            )
        pending = self._builder._hold("window", name)
        if not isinstance(window, Window):
            raise TopologyError(
                f"step {pending.name!r}: {window!r} is no window; write tumbling(60) or sliding(60, 10)"
            )
        time = self._builder._time(event_time, unit, pending.name)
        lateness_ms = whole_ms(allowed_lateness, f"step {pending.name!r}: allowed_lateness")
        return Streamlet(self._builder, self._place, self._key, (Windowing(window, time, lateness_ms), pending))

    def reduce_by_key(
        self,
        monoid: Any,
        value: Any = None,
        key: Any = None,
        updates: bool = True,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet:
        """One result for each key (and window). ``monoid``: one of ``monoids``, your own, or a function of two values.

        ``value``: what of the record is reduced (nothing: the whole record). ``key`` saves a ``key_by``. Without a
        window and with ``updates`` running results are emitted too. Raises TopologyError.
        """
        if not isinstance(monoid, Monoid):
            if not callable(monoid):
                raise TopologyError(
                    f"step {name or 'reduce_by_key'!r}: {monoid!r} is no monoid; write one of count() sum_() min_() "
                    "max_() mean() top_k() distinct(), monoid(zero, add), or a function of two values"
                )
            monoid = semigroup(monoid)
        return self._reduce("reduce_by_key", monoid, value, key, updates, name, parallelism)

    def count_by_key(
        self, key: Any = None, updates: bool = True, name: str | None = None, parallelism: int | None = None
    ) -> Streamlet:
        """How many records each key has."""
        return self._reduce("count_by_key", count(), None, key, updates, name, parallelism)

    def sum_by_key(
        self,
        value: Any = None,
        key: Any = None,
        updates: bool = True,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet:
        """The sum of ``value`` for each key."""
        return self._reduce("sum_by_key", sum_(), value, key, updates, name, parallelism)

    def late(self) -> Streamlet:
        """What came too late for this windowed reducer. Raises TopologyError behind anything else."""
        draft = self._builder._drafts[self._place[0]]
        if draft.cls is not ReduceStep or draft.fields["windowing"] is None:
            raise TopologyError(
                f"step {self._builder._step_name(self._place)!r} has no late data: only a reducer behind window() has"
            )
        return Streamlet(self._builder, (self._place[0], LATE))

    # Helpers.

    def _reduce(
        self, base: str, monoid: Monoid, value: Any, key: Any, updates: bool, name: str | None, parallelism: int | None
    ) -> Streamlet:
        where = name or base
        chosen = self._key
        if key is not None:
            if chosen is not None:
                raise TopologyError(f"step {where!r}: key= and key_by({chosen[1].name!r}) both set the key; keep one")
            chosen = (self._builder._extractor(key, where), _Pending("key_by", where))
        if chosen is None:
            raise TopologyError(
                f"step {where!r} (behind {self._builder._step_name(self._place)!r}): no key; put key_by(…) before it, "
                "or give it key=…"
            )
        chosen[1].used = True
        if self._window is not None:
            self._window[1].used = True
        fields = {
            "key": chosen[0], "value": self._builder._extractor(value, where), "monoid": monoid,
            "windowing": self._window[0] if self._window else None, "updates": bool(updates),
            "parallelism": parallelism, "key_step": chosen[1].name,
            "window_step": self._window[1].name if self._window else "",
        }  # fmt: skip
        return self._builder._add(ReduceStep, name, base, [self._place], fields)

    def _function_step(self, cls: type[Step], function: Any, name: str | None, parallelism: int | None) -> Streamlet:
        own = getattr(function, "__name__", "")
        base = own if re.fullmatch(r"[A-Za-z]\w*", own) else cls.kind
        return self._then(cls, base, name, {"function": function, "parallelism": parallelism})

    def _then(self, cls: type[Step], base: str, name: str | None, fields: dict[str, Any]) -> Streamlet:
        self._refuse_pending(cls.kind, name)
        return self._builder._add(cls, name, base, [self._place], fields)

    def _refuse_pending(self, kind: str, name: str | None) -> None:
        pending = self._key or self._window
        if pending is not None:
            raise TopologyError(
                f"step {name or kind!r}: {kind} stands behind {pending[1].kind} {pending[1].name!r}, which only a "
                "reducer may follow; move it before, or add count_by_key(), sum_by_key() or reduce_by_key()"
            )

    def __repr__(self) -> str:
        return f"Streamlet({self._builder._step_name(self._place)!r})"


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
