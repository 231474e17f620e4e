"""Runtime of ``process``: functions with a state and timers for each key, called in order of event time. Pure.

Theory of operation. The records of each key are processed in order of event time, and those with equal time in order of
their canonical encoding. The calls of a function thus depend on the records alone. A *moment* is one millisecond of one
key. Its records are gathered as a reducer gathers those of a window that is one millisecond long (``LENGTH_MS``,
``moment_monoid``). Map sides, shuffles, watermarks, lateness and portions of a stream are therefore those of a reducer.
At the point where a window's result would be made, the functions are called (``KeyTimeline``).

Timers are in event time. A key has one timer for each name, and setting it again moves it. A timer fires after the
records of its moment; several at one time fire in order of their names. A past time counts as now; in ``on_timer``, as
the next millisecond, so that time advances. At the end of all input, every timer that is still set fires. A timer that
sets itself again would do so indefinitely there. A key's timers therefore fire at most ``MOST_ALONE`` times after its
last record; further ones fail.

A call that raises emits nothing and sets no timer, and ``context.state`` is restored. Changes made *inside* the state
object are not undone.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple

from typing_extensions import TypeVar

from heronry.streamlet.compare import canonical
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.monoid import Monoid

LENGTH_MS = 1
MOST_ALONE = 10_000
_YEAR_10000_MS = 253_402_300_800_000

K = TypeVar("K", default=Any)
T = TypeVar("T", default=Any)
U = TypeVar("U", default=Any)


class Context(Generic[K, U]):
    """Key, time and state for one call of ``on_record`` or ``on_timer``. It is not valid after the call.

    Attributes:
        key: The key; any one of several that are equal.
        time_ms: Event time of the record or timer, ms since 1970 UTC.
        state: State of the key, initially None. Assign to it; it must support pickle.
    """

    __slots__ = ("_earliest_ms", "emitted", "key", "state", "time_ms", "timers")

    def __init__(self, key: K, time_ms: int, state: Any, earliest_ms: int) -> None:
        self.key = key
        self.time_ms = time_ms
        self.state: Any = state
        self._earliest_ms = earliest_ms
        self.emitted: list[U] = []
        self.timers: dict[str, int | None] = {}  # set in this call; None: cancelled

    def emit(self, record: U) -> None:
        """Emit a record with the event time of the call."""
        self.emitted.append(record)

    def set_timer(self, at_ms: int, name: str = "") -> None:
        """Set a timer, or move the timer of this name.

        Args:
            at_ms: Event time of the call of ``on_timer``, ms since 1970 UTC. A past time counts as now.
            name: Name of the timer.

        Raises:
            ValueError: The time is not an int, or after the year 9999, or the name is not a str.
        """
        if at_ms.__class__ is not int or at_ms >= _YEAR_10000_MS or not isinstance(name, str):
            raise ValueError(
                f"set_timer({at_ms!r}, {name!r}): write whole milliseconds since 1970, not after 9999, and a text"
            )
        self.timers[name] = max(at_ms, self._earliest_ms)

    def cancel_timer(self, name: str = "") -> None:
        """Cancel a timer, if it is set."""
        self.timers[name] = None


class Process(Generic[K, T, U]):
    """Base class of handlers for ``process``, with the types of key, input record and output record.

    Other classes with these methods are accepted as well. Keep values between calls in ``context.state`` rather than
    in the
    object: each task has its own object, which is lost when the task dies.
    """

    def on_record(self, context: Context[K, U], record: T) -> None:
        """Process one record. The records of a key arrive in the order of their event times."""
        raise NotImplementedError

    def on_timer(self, context: Context[K, U], name: str) -> None:
        """Process a timer that has fired."""
        raise NotImplementedError


def no_timer(context: Context[Any, Any], name: str) -> None:
    """Raise TypeError. Used for handlers without ``on_timer``."""
    raise TypeError(f"timer {name!r} fired without a handler: write a class that also has on_timer(context, name)")


@dataclass(frozen=True, slots=True)
class Handlers:
    """Pair of functions of a process step."""

    on_record: Callable[[Context[Any, Any], Any], None]
    on_timer: Callable[[Context[Any, Any], str], None] = no_timer
    name: str = "process"


def handlers_of(given: Any) -> Handlers:
    """Return the handlers of a function, of an object with ``on_record``, or of a class of such objects.

    Raises:
        TypeError: The object is none of these.
    """
    made = given() if inspect.isclass(given) else given
    name = str(getattr(given, "__name__", "") or type(given).__name__)
    if hasattr(made, "on_record"):
        inherited = getattr(type(made), "on_timer", None) is Process.on_timer
        return Handlers(made.on_record, no_timer if inherited else getattr(made, "on_timer", no_timer), name)
    if not callable(made):
        raise TypeError(
            f"{given!r} is nothing that could process records; write a function of (context, record), or a class with "
            "on_record(context, record) and on_timer(context, name)"
        )
    return Handlers(made, name=name)


# Moments, as a reducer gathers them.


def _with(acc: list[Any], record: Any) -> list[Any]:
    acc.append(record)
    return acc


def _together(a: list[Any], b: list[Any]) -> list[Any]:
    a.extend(b)
    return a


def _one(record: Any) -> list[Any]:
    return [record]


def moment_monoid(name: str) -> Monoid[Any, list[Any]]:
    """Return the monoid that gathers the records of a moment as a bag. ``name`` is that of the handler, for plans."""
    return Monoid(f"process {name}", list, _together, lift=_one, fold=_with, pack=list, unpack=list)


def records_of(row: Any) -> list[Any]:
    """Return the records of a late moment, a ``Windowed`` row."""
    records: list[Any] = row.value
    return records


def in_order(records: Sequence[Any]) -> Sequence[Any]:
    """Return the records of one moment in the order in which they are processed."""
    return records if len(records) < 2 else sorted(records, key=_order)


def _order(record: Any) -> tuple[bytes, str]:
    return canonical(record), repr(record)


# Processing of moments.


@dataclass(slots=True)
class KeyMemory:
    """State and timers of one key between its moments.

    Attributes:
        state: The user's state.
        timers: Event time of each timer by name, ms since 1970 UTC.
        alone: Number of timers that have fired since the last record of the key.
    """

    state: Any = None
    timers: dict[str, int] = field(default_factory=dict)
    alone: int = 0

    def __bool__(self) -> bool:
        """Return False if the key has neither a state nor timers."""
        return self.state is not None or bool(self.timers)

    def packed(self) -> bytes:
        """Return the serialized memory, for a checkpoint. Errors of pickle are raised unchanged."""
        return pickle.dumps((self.state, self.timers, self.alone), 5)


class MomentResult(NamedTuple):
    """Result of a moment: an emitted record, or an error on a record (on ``[key, ms, name]`` of a timer)."""

    time_ms: int
    record: Any
    error: StepFailed | None = None


class KeyTimeline:
    """Processor of the moments of one key, in order. It changes ``memory``."""

    def __init__(self, step: str, handlers: Handlers, key: Any, memory: KeyMemory) -> None:
        self._step, self._handlers, self._key = step, handlers, key
        self.memory = memory

    def moment(self, time_ms: int, records: Sequence[Any]) -> Iterator[MomentResult]:
        """Fire the timers before this moment, and process its records."""
        yield from self.until(time_ms)
        for record in in_order(records):
            self.memory.alone = 0
            yield from self._call(self._handlers.on_record, time_ms, record, record, time_ms)

    def until(self, time_ms: int | None) -> Iterator[MomentResult]:
        """Fire the timers before this time; None: all."""
        timers = self.memory.timers
        while timers:
            at_ms, name = min((at_ms, name) for name, at_ms in timers.items())
            if time_ms is not None and at_ms >= time_ms:
                return
            del timers[name]
            self.memory.alone += 1
            handler = self._handlers.on_timer if self.memory.alone <= MOST_ALONE else refuse_endless_timers
            yield from self._call(handler, at_ms, name, [self._key, at_ms, name], at_ms + 1)

    def _call(
        self,
        handler: Callable[[Context[Any, Any], Any], None],
        time_ms: int,
        argument: Any,
        shown: Any,
        earliest_ms: int,
    ) -> Iterable[MomentResult]:
        memory = self.memory
        context: Context[Any, Any] = Context(self._key, time_ms, memory.state, earliest_ms)
        try:
            handler(context, argument)
        except Exception as error:  # raised by the user's function
            failed = StepFailed(self._step, shown)
            failed.__cause__ = error
            return [MomentResult(time_ms, shown, failed)]
        memory.state = context.state
        for name, at_ms in context.timers.items():
            if at_ms is None:
                memory.timers.pop(name, None)
            else:
                memory.timers[name] = at_ms
        return [MomentResult(time_ms, record) for record in context.emitted]


def refuse_endless_timers(context: Context[Any, Any], name: str) -> None:
    """Raise RuntimeError. Called instead of ``on_timer`` when it has been called too often."""
    raise RuntimeError(
        f"timers of this key have fired {MOST_ALONE} times since its last record, so they would never end after the "
        "input ends; let on_timer stop setting timers after a while"
    )
