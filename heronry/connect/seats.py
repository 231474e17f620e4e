"""Two-phase sinks that are not limited to bolts: identity of the writer, two steps of processing, and retries.

A bolt of a topology, a streamlet program's online sink and a Spark task write through the same connector. The *seat*
identifies the writer to the connector; a bolt gets it from its context. ``encoded`` checks without a server whether the
system can represent the values, so callers can check each record before anything is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

from heronry.api.state import TwoPhaseSink
from heronry.api.tuples import Tuple
from heronry.connect.marks import life_of
from heronry.connect.settings import Option, require, step_name


class Seat(NamedTuple):
    """Identity of a sink's writer.

    Attributes:
        step: Name that is unique to the step's output, and safe as part of a file name.
        task: Id of the task.
        life: Name of the life of the topology or run, without ``-``.
        tasks: All tasks of the step, or None if unknown others may be active.
        fields: Fields of the input, if they are known in advance.
        writer: Name to sign with in systems that remember each writer forever; empty if step and life are used.
    """

    step: str
    task: int
    life: str
    tasks: frozenset[int] | None = None
    fields: tuple[str, ...] = ()
    writer: str = ""


def seat_of(context: Any) -> Seat:
    """Return the seat of a bolt."""
    tasks = frozenset(context.get_component_tasks(context.get_component_id()))
    return Seat(step_name(context), context.get_task_id(), life_of(context.get_topology_id()), tasks)


class SeatedSink(TwoPhaseSink):
    """Base class of two-phase sinks with a seat.

    Subclasses implement ``open``. For use in programs they also implement ``encoded``, ``take`` and ``forget``.
    """

    options: ClassVar[tuple[Option, ...]] = ()

    @classmethod
    def settings(cls) -> set[str]:
        """Return the keys of the sink's options."""
        return {option.key for option in cls.options}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Check the configuration, and open the sink. Raises BadConfig, ConnectError."""
        require(self, config)
        self.open(config, seat_of(context))

    def open(self, config: dict[str, Any], seat: Seat) -> None:
        """Open the sink.

        Args:
            config: The configuration, which has been checked.
            seat: Identity of the writer.

        Raises:
            BadConfig: The configuration does not fit the input.
            ConnectError: The system cannot be reached or written.
        """
        raise NotImplementedError(f"{type(self).__name__} has no open(self, config, seat)")

    @classmethod
    def replaces_by(cls, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the fields of the key by which rows replace present ones; empty if rows are only added."""
        del config
        return ()

    @classmethod
    def encoded(cls, fields: Sequence[str], values: Sequence[Any]) -> Any:
        """Return the argument of ``take`` for values; it can be pickled.

        Raises:
            ConnectError: The system cannot represent a value.
        """
        raise NotImplementedError(f"{cls.__name__} has no encoded(cls, fields, values)")

    @classmethod
    def encoder(cls, config: Mapping[str, Any], fields: Sequence[str]) -> Callable[[Sequence[Any]], Any]:
        """Return ``encoded`` for values of these fields.

        Raises:
            ConnectError: The system must be queried first and cannot be reached.
        """
        return partial(cls.encoded, fields)

    def take(self, encoded: Any) -> None:
        """Write an encoded record. Raises ConnectError."""
        raise NotImplementedError(f"{type(self).__name__} has no take(self, encoded)")

    def process(self, tup: Tuple) -> None:
        """Encode and write a tuple. Raises ConnectError."""
        self.take(self.encoded(tup.fields, tup.values))

    def commit_all(self, tokens: Sequence[str]) -> None:
        """Commit several tokens, in one step if the system supports it. Raises ConnectError."""
        for token in tokens:
            self.commit(0, token)

    def forget(self) -> None:
        """Discard prepared output of the step, and the records of its committed tokens. Raises ConnectError."""
        raise NotImplementedError(f"{type(self).__name__} has no forget(self)")


FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS = 0.25, 10.0


@dataclass(slots=True)
class Attempt:
    """One attempt of an operation.

    Attributes:
        last: Whether no other attempt follows.
        asked_secs: Pause in seconds that the other side has requested, set by the caller.
    """

    last: bool
    asked_secs: float = 0.0


def attempts(number: int) -> Iterator[Attempt]:
    """Yield up to ``number`` attempts, with pauses between them that double.

    Iterating further means that the attempt has failed.
    """
    pause = FIRST_PAUSE_SECS
    for remaining in reversed(range(number)):
        attempt = Attempt(remaining == 0)
        yield attempt
        if not attempt.last:
            time.sleep(min(max(pause, attempt.asked_secs), LONGEST_PAUSE_SECS))
            pause = min(2 * pause, LONGEST_PAUSE_SECS)
