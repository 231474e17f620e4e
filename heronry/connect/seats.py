"""Sinks with two phases that others than bolts can use, too: which writer one is, and ``process`` in two halves.

A bolt of a topology, a streamlet program's sink online and a task of Spark's write through the same connector. What it
must know of where it stands is its *seat*; a bolt has it from its context. ``encoded`` says without a server whether a
system has a place for the values, so that whoever must know this of each record before anything is done can ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

from heronry.api.state import TwoPhaseSink
from heronry.api.tuples import Tuple
from heronry.connect.marks import life_of
from heronry.connect.settings import Option, require, step_name


class Seat(NamedTuple):
    """Which writer a sink is.

    ``step`` tells its output from that of all others, and is safe as a part of a file name; ``life`` is that of its
    topology or run, without ``-``; ``tasks`` are all of its step, None where others may be at work that nobody can
    name; ``fields`` are those of what it is given, where they are known before anything comes; ``writer`` signs for it
    where a system keeps what it knows of each writer for ever, and is empty where step and life do.
    """

    step: str
    task: int
    life: str
    tasks: frozenset[int] | None = None
    fields: tuple[str, ...] = ()
    writer: str = ""


def seat_of(context: Any) -> Seat:
    """That of a bolt."""
    tasks = frozenset(context.get_component_tasks(context.get_component_id()))
    return Seat(step_name(context), context.get_task_id(), life_of(context.get_topology_id()), tasks)


class SeatedSink(TwoPhaseSink):
    """Derive and write ``open``; for programs, ``encoded``, ``take`` and ``forget`` as well."""

    options: ClassVar[tuple[Option, ...]] = ()

    @classmethod
    def settings(cls) -> set[str]:
        """The keys of its configuration."""
        return {option.key for option in cls.options}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Raises BadConfig, ConnectError."""
        require(self, config)
        self.open(config, seat_of(context))

    def open(self, config: dict[str, Any], seat: Seat) -> None:
        """Begin; the configuration has been checked. Raises BadConfig, ConnectError."""
        raise NotImplementedError(f"{type(self).__name__} has no open(self, config, seat)")

    @classmethod
    def replaces_by(cls, config: Mapping[str, Any]) -> tuple[str, ...]:
        """The fields by which what is given takes the place of what is there; none where it is only added."""
        del config
        return ()

    @classmethod
    def encoded(cls, fields: Sequence[str], values: Sequence[Any]) -> Any:
        """What ``take`` wants, which can be pickled. Raises ConnectError for values the system has no place for."""
        raise NotImplementedError(f"{cls.__name__} has no encoded(cls, fields, values)")

    @classmethod
    def encoder(cls, config: Mapping[str, Any], fields: Sequence[str]) -> Callable[[Sequence[Any]], Any]:
        """``encoded`` for values of these fields. Raises ConnectError where it has to look at the system first."""
        return partial(cls.encoded, fields)

    def take(self, encoded: Any) -> None:
        """Take what was encoded. Raises ConnectError."""
        raise NotImplementedError(f"{type(self).__name__} has no take(self, encoded)")

    def process(self, tup: Tuple) -> None:
        """Take it. Raises ConnectError."""
        self.take(self.encoded(tup.fields, tup.values))

    def commit_all(self, tokens: Sequence[str]) -> None:
        """``commit`` of several; at once, where the system can. Raises ConnectError."""
        for token in tokens:
            self.commit(0, token)

    def forget(self) -> None:
        """Nothing is left of this step but what was committed: what is prepared is thrown away, and what tells which
        tokens were committed is removed. Raises ConnectError."""
        raise NotImplementedError(f"{type(self).__name__} has no forget(self)")
