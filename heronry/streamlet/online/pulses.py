"""Pulses: how a reducer learns that its results have arrived in other processes. Pure.

Theory of operation. Only spouts open roots, and only they are told what became of them; a reducer's results belong to
no record in particular. So a source (one task of it) emits a *pulse* twice a second: a tracked tuple that goes, by way
of chains, to every task of each reducer whose results leave its process. A reducer holds the newest pulse in its hands
and anchors what it emits to it; when the next one comes it acks the old one. The pulse's tree is complete when all that
was anchored to it is processed, on disk where it must be, and the source says in later pulses up to which number all
are complete. What was emitted under those is *confirmed* and forgotten; until then the reducer keeps it.

When one pulse fails (a process behind has died, a record failed) the source begins a new *generation*: nothing of the
old one counts any more, and reducers emit again whatever was not confirmed. A source that is started again begins a new
generation, too. Generations need not be in order for this to be right: a result is dropped only when the very pulse it
was anchored to is confirmed. A pulse that nobody can complete costs time and repetitions, never a result.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

PULSE_SECONDS = 0.5
HOLD_SECONDS = 2.0  # a pulse is let go when no other comes for so long: the message timeout counts
NONE = -1  # no pulse is confirmed yet


class Pulse(NamedTuple):
    """As it travels. ``confirmed``: every pulse of this generation up to this number is complete."""

    source: str
    generation: int
    number: int
    confirmed: int


class Heart:
    """The source's side. A generation is a number that this source has never used."""

    def __init__(self, source: str, generation: int) -> None:
        self._source = source
        self.generation = generation
        self._begin()

    def _begin(self) -> None:
        self._next, self._confirmed = 0, NONE
        self._open: dict[int, bool] = {}  # by number, in order: is it acked?

    def beat(self) -> Pulse:
        """The next pulse."""
        number, self._next = self._next, self._next + 1
        self._open[number] = False
        return Pulse(self._source, self.generation, number, self._confirmed)

    def acked(self, generation: int, number: int) -> None:
        """A pulse's tree is complete."""
        if generation != self.generation or number not in self._open:
            return
        self._open[number] = True
        while self._open and self._open[first := next(iter(self._open))]:
            del self._open[first]
            self._confirmed = first

    def failed(self, generation: int, fresh: int) -> None:
        """A pulse's tree is broken: ``fresh``, or what comes after it, is the next generation."""
        if generation == self.generation:
            self.generation = max(fresh, self.generation + 1)
            self._begin()

    @property
    def open(self) -> int:
        """Pulses neither acked nor failed."""
        return sum(not acked for acked in self._open.values())

    def check(self) -> None:
        """Numbers go up, and the first open one is not acked."""
        numbers = list(self._open)
        assert numbers == sorted(numbers), "pulses are out of order"
        assert not numbers or (numbers[0] > self._confirmed and not self._open[numbers[0]]), "a confirmation is missed"


class Held(NamedTuple):
    """What is kept for one name; ``tries``: how often it was sent and not confirmed, or could not be sent."""

    value: Any
    tries: int


class Outbox:
    """The reducer's side: results by name (a window, a key) that wait to be emitted, or to be confirmed."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, Held] = {}
        self._sent: dict[int, dict[Hashable, Held]] = {}  # by the number of the pulse
        self._generation: int | None = None
        self._number = NONE

    def put(self, name: Hashable, value: Any) -> None:
        """To be emitted; it takes the place of an older result of this name that waits."""
        self._waiting[name] = Held(value, 0)

    def take(self) -> dict[Hashable, Held]:
        """All that waits. Give each to ``sent`` or ``again``."""
        taken, self._waiting = self._waiting, {}
        return taken

    def sent(self, taken: dict[Hashable, Held]) -> None:
        """These were emitted, anchored to the newest pulse."""
        self._sent.setdefault(self._number, {}).update(taken)

    def again(self, taken: dict[Hashable, Held]) -> None:
        """These could not be emitted, or may be lost."""
        for name, held in taken.items():
            self._waiting.setdefault(name, Held(held.value, held.tries + 1))

    def accepts(self, pulse: Pulse, holding: bool) -> bool:
        """True for a pulse that is news: of this generation or a later one; of any, if none is held."""
        if self._generation is None or pulse.generation > self._generation:
            return True
        return pulse.number > self._number if pulse.generation == self._generation else not holding

    def on_pulse(self, pulse: Pulse) -> dict[Hashable, Held]:
        """It is held from now on. Returns what is confirmed by it."""
        confirmed: dict[Hashable, Held] = {}
        if pulse.generation == self._generation:
            for number in [n for n in self._sent if n <= pulse.confirmed]:
                confirmed.update(self._sent.pop(number))
        else:
            lost, self._sent = self._sent, {}
            for number in sorted(lost, reverse=True):  # of one name the newest
                self.again(lost[number])
        self._generation, self._number = pulse.generation, pulse.number
        return confirmed

    def waits(self) -> bool:
        """True if something is to be emitted."""
        return bool(self._waiting)

    def held(self) -> dict[Hashable, Any]:
        """Everything that is not confirmed: the newest value of each name."""
        found: dict[Hashable, Any] = {}
        for number in sorted(self._sent):
            found.update((name, held.value) for name, held in self._sent[number].items())
        found.update((name, held.value) for name, held in self._waiting.items())
        return found

    def __len__(self) -> int:
        return len(self._waiting) + sum(map(len, self._sent.values()))

    def check(self) -> None:
        """Nothing is booked under a pulse that has not come."""
        assert all(number <= self._number for number in self._sent), "sent under a pulse to come"
