"""The simulated world: one heap of actions, one clock, one random source, and what every simulated process is.

Theory of operation. Everything that happens is an action on the heap, ordered by (time, sequence); actions run one
after the other, and each may put further ones on the heap. Every choice (delays, faults, what user code does) is drawn
from ``Simulation.rng``, so a seed fixes the whole run. Each thing that happens is also a line of the trace;
the hash of the trace compares two runs.

A *process* is a name, a life (counted from 1, one more with each start) and an inbox. What arrives while the process
is stopped waits there, timers included; what belongs to an earlier life is forgotten. There is no asyncio, no thread
and no real clock in here.

Nor need any two processes agree on the time: what a core is told (``SimProcess.clock_ms``) is a clock of its process,
which in some simulations (``Simulation.skew_ms``) is another one in each life, as on hosts whose clocks nobody sets.
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

CLOCKS_BEGIN_MS = 60_000  # what a right clock shows when the world begins: one that is slow is not before its epoch


class Violation(BaseException):
    """A law does not hold. ``story`` tells what happened to the root in question, if there is one.

    No Exception, since laws are also checked inside user code, and executors catch what user code raises.
    """

    def __init__(self, law: str, story: list[str] | None = None) -> None:
        super().__init__(law)
        self.law = law
        self.story = story or []


def broken_law(run: Callable[[int], object], seed: int) -> str:
    """Run a schedule and return the law that it breaks, or what a core raises; an empty string if all laws hold."""
    try:
        run(seed)
    except Violation as violation:
        return violation.law
    except (AssertionError, KeyError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


class Simulation:
    """Time, chance and the trace. ``listener`` gets each line of the trace."""

    def __init__(self, seed: int, listener: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.now_ms = 0.0
        self.skew_ms = 0  # how far a process's clock may be from the right one
        self.steps = 0
        self._heap: list[tuple[float, int, Action]] = []
        self._sequence = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self._listener = listener

    def at(self, when_ms: float, action: Action) -> None:
        """Do this then."""
        self._sequence += 1
        heappush(self._heap, (when_ms if when_ms > self.now_ms else self.now_ms, self._sequence, action))

    def after(self, delay_ms: float, action: Action) -> None:
        """Do this after a while."""
        self.at(self.now_ms + delay_ms, action)

    def between(self, low: float, high: float) -> float:
        """A random number of milliseconds, to the microsecond."""
        return round(self.rng.uniform(low, high), 3)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.rng.random() < probability

    def run_until(self, when_ms: float) -> None:
        """Run every action up to a moment, which is now afterwards."""
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
        """Of everything that happened so far."""
        return self._digest.hexdigest()


class SimProcess:
    """A process that can die, be started again, and be stopped for a while. ``host`` is where it runs."""

    def __init__(self, world: Simulation, name: str, host: int) -> None:
        self.world = world
        self.name = name
        self.host = host
        self.alive = False
        self.paused = False
        self.life = 0
        self.skew_ms = 0  # of its clock, in this life
        self.ends: dict[End, None] = {}  # open connections
        self.stops: list[tuple[float, float]] = []  # when it was stopped, and until when
        self._inbox: deque[Action] = deque()

    def boot(self) -> None:
        """Build the core and begin. Called at each start."""
        raise NotImplementedError

    def died(self) -> None:
        """The process is gone: account for what was in it."""

    def on_fault(self) -> None:
        """It has died or starts anew: others may need a while to follow."""

    def log(self, text: str) -> None:
        """Add a line to the trace."""
        self.world.log(self.name, text)

    @property
    def clock_ms(self) -> float:
        """What its own clock shows."""
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
        """Die. Connections end; with ``restart_after_ms`` another life begins then."""
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
        """SIGSTOP, and SIGCONT after a while."""
        if not self.alive or self.paused:
            return
        self.log(f"is stopped for {duration_ms:.0f} ms")
        self.paused = True
        life, until = self.life, self.world.now_ms + duration_ms
        self.stops.append((self.world.now_ms, until))
        self.world.at(until, lambda: self.resume() if self.life == life else None)

    def resume(self) -> None:
        """SIGCONT: what waits is taken in the order in which it came."""
        if not self.alive or not self.paused:
            return
        self.log("goes on")
        self.paused = False
        if self.stops:
            self.stops[-1] = (self.stops[-1][0], self.world.now_ms)
        while self._inbox and self.alive and not self.paused:
            self._inbox.popleft()()

    def stopped_within(self, since_ms: float) -> bool:
        """True if it was stopped at any time since."""
        return any(until >= since_ms for _, until in self.stops)

    def receive(self, action: Action) -> None:
        """Something has come: at once, or when the process goes on."""
        if self.paused:
            self._inbox.append(action)
        elif self.alive:
            action()

    def later(self, delay_ms: float, action: Action) -> None:
        """A timer of this life."""
        life = self.life

        def fire() -> None:
            if self.alive and self.life == life:
                self.receive(action)

        self.world.at(self.world.now_ms + delay_ms, fire)
