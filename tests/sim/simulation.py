"""The simulation: one heap of actions, one clock, one random source, and the base class of processes.

Theory of operation. Everything is an action on the heap, ordered by (time, sequence); actions run one after the other,
and each may add further ones. Every choice (delays, faults, behaviour of user code) is drawn from ``Simulation.rng``,
so a seed determines the whole run. Each event is also a line of the trace; the hash of the trace compares two runs.

A *process* has a name, a life (counted from 1, incremented with each start) and an inbox. While the process is stopped,
messages and timers wait in the inbox; those of an earlier life are dropped. asyncio, threads and a real clock are not
used.

The clocks of two processes need not agree: a core gets the time from the clock of its process
(``SimProcess.clock_ms``), which in some simulations (``Simulation.skew_ms``) differs in each life, as on hosts without
clock synchronisation.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .wire import End

Action = Callable[[], object]

CLOCKS_BEGIN_MS = 60_000  # a correct clock at the start; a slow one is not before its epoch


class Violation(BaseException):
    """Violation of an invariant. ``story`` is the history of the root in question, if there is one.

    It is not an Exception, since invariants are also checked inside user code, whose exceptions executors catch.
    """

    def __init__(self, law: str, story: list[str] | None = None) -> None:
        super().__init__(law)
        self.law = law
        self.story = story or []


def broken_law(run: Callable[[int], object], seed: int) -> str:
    """Run a schedule and return the invariant that it breaks, or the error of a core; an empty string if all hold."""
    try:
        run(seed)
    except Violation as violation:
        return violation.law
    except (AssertionError, KeyError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


class Simulation:
    """Simulated time, randomness and the trace. ``listener`` gets each line of the trace."""

    def __init__(self, seed: int, listener: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.now_ms = 0.0
        self.skew_ms = 0  # maximum offset of a process's clock
        self.steps = 0
        self._heap: list[tuple[float, int, Action]] = []
        self._sequence = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self._listener = listener

    def at(self, when_ms: float, action: Action) -> None:
        """Schedule an action at a time."""
        self._sequence += 1
        heappush(self._heap, (when_ms if when_ms > self.now_ms else self.now_ms, self._sequence, action))

    def after(self, delay_ms: float, action: Action) -> None:
        """Schedule an action after a delay."""
        self.at(self.now_ms + delay_ms, action)

    def between(self, low: float, high: float) -> float:
        """Return a random number of milliseconds, to the microsecond."""
        return round(self.rng.uniform(low, high), 3)

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.rng.random() < probability

    def run_until(self, when_ms: float) -> None:
        """Run every action up to a time, and advance the clock to it."""
        heap = self._heap
        while heap and heap[0][0] <= when_ms:
            self.now_ms, _, action = heappop(heap)
            self.steps += 1
            action()
        self.now_ms = when_ms

    def log(self, who: str, text: str) -> None:
        """Add a line to the trace."""
        line = f"{self.now_ms:10.3f} {who:<12} {text}"
        self._digest.update(line.encode())
        if self._listener is not None:
            self._listener(line)

    def trace_hash(self) -> str:
        """Return the hash of the trace so far."""
        return self._digest.hexdigest()


class SimProcess:
    """Process that can die, restart, and be stopped for a while. ``host`` is where it runs."""

    def __init__(self, world: Simulation, name: str, host: int) -> None:
        self.world = world
        self.name = name
        self.host = host
        self.alive = False
        self.paused = False
        self.life = 0
        self.skew_ms = 0  # of its clock, in this life
        self.ends: dict[End, None] = {}  # open connections
        self.stops: list[tuple[float, float]] = []  # intervals in which it was stopped
        self._inbox: deque[Action] = deque()

    def boot(self) -> None:
        """Build the core and start it. Called at each start."""
        raise NotImplementedError

    def died(self) -> None:
        """Account for the data that was in the process."""

    def on_fault(self) -> None:
        """Handle its death or restart, after which others may need time to follow."""

    def log(self, text: str) -> None:
        """Add a line to the trace."""
        self.world.log(self.name, text)

    @property
    def clock_ms(self) -> float:
        """Return the time of its own clock."""
        return self.world.now_ms + CLOCKS_BEGIN_MS + self.skew_ms

    def start(self) -> None:
        """Start a new life."""
        if self.alive:
            return
        self.life += 1
        self.alive = True
        self.paused = False
        if self.world.skew_ms:
            self.skew_ms = self.world.rng.randint(-self.world.skew_ms, self.world.skew_ms)
        self.log(f"starts, life {self.life}")
        if self.life > 1:
            self.on_fault()
        self.boot()

    def crash(self, why: str, restart_after_ms: float | None) -> None:
        """Die and end the connections; with ``restart_after_ms`` another life starts then."""
        if not self.alive:
            return
        self.log(f"dies: {why}")
        self.alive = False
        self.paused = False
        self._inbox.clear()
        for end in list(self.ends):
            end.die()
        self.ends.clear()
        self.died()
        self.on_fault()
        if restart_after_ms is not None:
            self.world.after(restart_after_ms, self.start)

    def pause(self, duration_ms: float) -> None:
        """Stop the process (SIGSTOP) and resume it (SIGCONT) after a while."""
        if not self.alive or self.paused:
            return
        self.log(f"is stopped for {duration_ms:.0f} ms")
        self.paused = True
        life, until = self.life, self.world.now_ms + duration_ms
        self.stops.append((self.world.now_ms, until))
        self.world.at(until, lambda: self.resume() if self.life == life else None)

    def resume(self) -> None:
        """Resume (SIGCONT) and handle waiting messages in the order of their arrival."""
        if not self.alive or not self.paused:
            return
        self.log("goes on")
        self.paused = False
        if self.stops:
            self.stops[-1] = (self.stops[-1][0], self.world.now_ms)
        while self._inbox and self.alive and not self.paused:
            self._inbox.popleft()()

    def stopped_within(self, since_ms: float) -> bool:
        """Return True if it was stopped at any time since."""
        return any(until >= since_ms for _, until in self.stops)

    def receive(self, action: Action) -> None:
        """Run an action at once, or when the process resumes."""
        if self.paused:
            self._inbox.append(action)
        elif self.alive:
            action()

    def later(self, delay_ms: float, action: Action) -> None:
        """Set a timer of this life."""
        life = self.life

        def fire() -> None:
            if self.alive and self.life == life:
                self.receive(action)

        self.world.at(self.world.now_ms + delay_ms, fire)
