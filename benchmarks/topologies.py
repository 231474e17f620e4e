"""Topologies of the benchmarks. The file is submitted alone, so it imports nothing of its folder.

Tasks and driver share a *board*: a file of counters, one row of eight 64-bit words per task, mapped by all of them.
Spouts write how many tuples they have emitted and had acked, every 1 024 tuples. Bolts write how many they have
executed on a tick, once the driver has set the stop word in row 0. The measurement thus costs nothing in the steady
state, and at the end the driver can compare every count exactly.

Latencies: while the driver's measuring word is set, some tuples are *stamped* with the time at which they were due
(open loop) or emitted, on the clock that all processes of a machine share. A stamped word is unknown to the counter, so
only its path for new words looks for stamps.
"""

from __future__ import annotations

import array
import importlib.util
import json
import mmap
import random
import struct
import sys
import time
from pathlib import Path
from typing import Any

from heronry import BatchBolt, Bolt, Grouping, Spout, TopologyBuilder

ROW_BYTES = 64
EMITTED, ACKED, FAILED, EXECUTED, DONE = range(5)
STOP, MEASURE = 0, 1  # words of row 0
WORDS = 175_000
PICKS = 1 << 17
SAMPLE_EVERY = 1024  # a power of two
SAMPLE_EVERY_OF_FEW = 16
LARGE_BYTES = 10_000
LOOK_EACH_SECONDS = 0.001


class Board:
    """Shared counters; a task writes only its own row."""

    def __init__(self, path: str, task: int = 0) -> None:
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._row = task * ROW_BYTES

    def put(self, word: int, value: int) -> None:
        """Write one word of the task's row."""
        struct.pack_into("=Q", self._map, self._row + 8 * word, value)

    def get(self, task: int, word: int) -> int:
        """Read a word of any row."""
        return int(struct.unpack_from("=Q", self._map, task * ROW_BYTES + 8 * word)[0])

    def stopping(self) -> bool:
        """Return True if the driver wants no more tuples."""
        return self._map[8 * STOP] != 0

    def measuring(self) -> bool:
        """Return True if the driver wants latencies."""
        return self._map[8 * MEASURE] != 0


def save(folder: Path, name: str, values: array.array[float]) -> None:
    """Write latencies (seconds) atomically to the driver's folder."""
    half = folder / f".{name}"
    with half.open("wb") as file:
        values.tofile(file)
    half.rename(folder / name)


def some_words() -> list[str]:
    """Return a fixed random walk over the dictionary of 175 000 words."""
    rng = random.Random(1)
    words: set[str] = set()
    while len(words) < WORDS:
        words.add("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.choice((4, 5, 6, 7, 8, 9, 10, 11, 12)))))
    ordered = sorted(words)
    return [rng.choice(ordered) for _ in range(PICKS)]


def unlearn(component: Any, config: dict[str, Any], context: Any) -> None:
    """Disable one optimisation, if the benchmark measures its effect."""
    if config.get("user.without"):
        spec = importlib.util.spec_from_file_location("without", config["user.without.file"])
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.take_away(config["user.without"], component, context)


class LoadSpout(Spout):
    """Spout at full speed, or at a rate (open loop: tuple k is due at k/rate, however late it is emitted)."""

    outputs = ["word"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Prepare rows and the clock."""
        self.task = context.get_task_id()
        self.board = Board(config["user.board"], self.task)
        self.folder = Path(config["user.folder"])
        self.tracked = config["user.acks"]
        self.rate = config["user.rate"] / len(context.get_component_tasks(context.get_component_id()))
        self.rows = self.make_rows(config)
        self.size = config["user.size"]
        self.number = self.acked = self.failed = 0
        few = self.rate or self.size >= LARGE_BYTES
        self.skip = (SAMPLE_EVERY_OF_FEW if few else SAMPLE_EVERY) - 1  # bits that a stamped number does not have
        self.stamps: dict[int, float] = {}
        self.late = array.array("d")
        self.start = self.look_at = 0.0
        self.finished = self.measuring = False
        if self.rate:
            self.next_tuple = self.next_due  # type: ignore[method-assign]  # chosen once
        unlearn(self, config, context)

    def make_rows(self, config: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Return the rows to emit repeatedly."""
        return [(word,) for word in some_words()]

    def stamped(self, due: float) -> tuple[Any, ...]:
        """Return a row with the time at which it was due."""
        return (f"@{due:.6f} ".ljust(self.size, "x"),)

    def next_tuple(self) -> None:
        """Emit one tuple."""
        number = self.number
        row = self.rows[number & PICKS - 1]
        if not number & self.skip:
            if self.report():
                return
            row = self.stamp(number, time.perf_counter(), row)
        self.number = number + 1
        if self.tracked:
            self.emit(row, number)
        else:
            self.emit(row)

    def next_due(self) -> None:
        """Emit all due tuples, checked once per millisecond, since a busy loop would distort the measurement."""
        now = time.perf_counter()
        if now < self.look_at:
            return
        self.look_at = now + LOOK_EACH_SECONDS
        if self.finished or self.report():
            return
        self.start = self.start or now
        due = int((now - self.start) * self.rate)
        for number in range(self.number, min(due, self.number + 4096)):
            self.number = number + 1
            row = self.rows[number & PICKS - 1]
            if not number & self.skip:
                row = self.stamp(number, self.start + number / self.rate, row)
            if self.tracked:
                self.emit(row, number)
            else:
                self.emit(row)

    def stamp(self, number: int, due: float, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the row to emit in place of ``row``, if latencies are wanted."""
        if not self.measuring:
            return row
        if self.tracked:
            self.stamps[number] = due
        return self.stamped(due)

    def ack(self, tup_id: int) -> None:
        """Count the ack, and take the latency of a stamped tuple."""
        self.acked += 1
        if not tup_id & self.skip:
            due = self.stamps.pop(tup_id, None)
            if due is not None:
                self.late.append(time.perf_counter() - due)

    def fail(self, tup_id: int) -> None:
        """Record a fail, which invalidates the benchmark."""
        self.failed += 1

    def report(self) -> bool:
        """Write the board; return True when there is nothing more to emit."""
        board = self.board
        board.put(EMITTED, self.number)
        board.put(ACKED, self.acked)
        board.put(FAILED, self.failed)
        self.measuring = board.measuring()
        if not board.stopping():
            return False
        if not self.finished and (not self.tracked or self.acked + self.failed == self.number):
            save(self.folder, f"complete-{self.task}", self.late)
            board.put(DONE, 1)
            self.finished = True
        return True


class PayloadSpout(LoadSpout):
    """Spout of strings of a given size."""

    def make_rows(self, config: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Return different contents, so that nothing can be shared."""
        size = config["user.size"]
        kinds = [(f"{k:08d}".rjust(size, "x")[-size:],) for k in range(64)]
        return [kinds[k & 63] for k in range(PICKS)]


class EventSpout(LoadSpout):
    """Spout of RTAC's events."""

    outputs = ["user", "number", "kind"]

    def make_rows(self, config: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Return rows of a user, a number, a kind."""
        return [(word, number, "click") for number, word in enumerate(some_words())]

    def stamped(self, due: float) -> tuple[Any, ...]:
        """Return a negative event number as the stamp in microseconds; ordinary ones are never negative."""
        return ("stamp", -int(due * 1e6), "click")


class IdleSpout(Spout):
    """Spout without tuples."""

    outputs = ["word"]

    def next_tuple(self) -> None:
        """Emit nothing."""


class IdleBolt(Bolt):
    """Bolt without input, and without ticks, which would be work."""

    def process(self, tup: Any) -> None:
        """Ignore the tuple."""


class Counting:
    """Mixin of counting bolts that writes the board on a tick, once the driver has asked for it."""

    count: int

    def open_board(self, config: dict[str, Any], context: Any) -> None:
        """Find the task's row."""
        self.task = context.get_task_id()
        self.board = Board(config["user.board"], self.task)
        self.folder = Path(config["user.folder"])
        self.executed = 0
        self.counts: dict[Any, int] = {}
        self.late = array.array("d")
        unlearn(self, config, context)

    def process_tick(self, tup: Any) -> None:
        """Write the count if the driver wants it."""
        if self.board.stopping():
            if self.late:
                save(self.folder, f"latency-{self.task}", self.late)
            self.board.put(EXECUTED, self.total())

    def new_word(self, word: str) -> None:
        """Handle a new word: take its stamp, or start to count it."""
        if word[0] == "@":
            self.late.append(time.perf_counter() - float(word[1:].split(" ", 1)[0]))
            self.executed += 1
        else:
            self.counts[word] = 1

    def total(self) -> int:
        """Return the number of tuples executed."""
        return self.executed


class CountBolt(Counting, Bolt):
    """Bolt that counts words one by one and acks explicitly."""

    config = {"topology.tick.tuple.freq.ms": 250}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start with an empty map."""
        self.open_board(config, context)

    def process(self, tup: Any) -> None:
        """Count one word."""
        word = tup.values[0]
        try:
            self.counts[word] += 1
        except KeyError:
            self.new_word(word)
        self.ack(tup)

    def total(self) -> int:
        """Return the sum over all words, and the stamps."""
        return sum(self.counts.values()) + self.executed


class BatchCountBolt(Counting, BatchBolt):
    """Bolt that counts words a batch at a time."""

    config = {"topology.tick.tuple.freq.ms": 250}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start with an empty map."""
        self.open_board(config, context)

    def process_batch(self, tuples: Any) -> None:
        """Count one column."""
        counts = self.counts
        for word in tuples.column(0):
            try:
                counts[word] += 1
            except KeyError:
                self.new_word(word)

    def total(self) -> int:
        """Return the sum over all words, and the stamps."""
        return sum(self.counts.values()) + self.executed


class DistributorBolt(Counting, Bolt):
    """RTAC bolt that passes user and number on."""

    outputs = ["user", "number"]
    config = {"topology.tick.tuple.freq.ms": 250}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Open the board."""
        self.open_board(config, context)

    def process(self, tup: Any) -> None:
        """Pass one event on."""
        self.executed += 1
        user, number, _ = tup.values
        self.emit((user, number), anchors=tup)
        self.ack(tup)


class UserCountBolt(Counting, Bolt):
    """RTAC bolt that records when users were seen, and reports to the aggregator once a second."""

    outputs = ["events", "users"]
    config = {"topology.tick.tuple.freq.ms": 250}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start without users."""
        self.open_board(config, context)
        self.users: dict[str, int] = {}
        self.ticks = 0

    def process(self, tup: Any) -> None:
        """Record one activity."""
        self.executed += 1
        user, number = tup.values
        if number < 0:
            self.late.append(time.perf_counter() + number / 1e6)
        self.users[user] = number
        self.ack(tup)

    def process_tick(self, tup: Any) -> None:
        """Write the board four times a second, and report to the aggregator once."""
        Counting.process_tick(self, tup)
        self.ticks += 1
        if not self.ticks % 4:
            self.emit((self.executed, len(self.users)))


class AggregatorBolt(Bolt):
    """RTAC bolt that keeps the newest numbers of each counter."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start without numbers."""
        self.by_task: dict[int, int] = {}

    def process(self, tup: Any) -> None:
        """Store one report."""
        self.by_task[tup.task] = tup.values[1]
        self.ack(tup)


def build(name: str, case: str, tasks: int, bolt: str, branches: int, spouts: int, config: Any) -> TopologyBuilder:
    """Return the topology of one case; ``branches``: bolts of a fan-out, ``spouts``: spout tasks."""
    builder = TopologyBuilder(name)
    builder.set_config(config)
    counter = BatchCountBolt if bolt == "batch" else IdleBolt if case == "idle" else CountBolt
    if case == "rtac":
        events = builder.add_spout("spout", EventSpout, par=spouts)
        distributor = builder.add_bolt("distributor", DistributorBolt, par=tasks, inputs={events: Grouping.SHUFFLE})
        users = builder.add_bolt("last", UserCountBolt, par=tasks, inputs={distributor: Grouping.fields("user")})
        builder.add_bolt("aggregator", AggregatorBolt, par=1, inputs={users: Grouping.GLOBAL})
        return builder
    kind = {"payload": PayloadSpout, "idle": IdleSpout}.get(case, LoadSpout)
    spout = builder.add_spout("spout", kind, par=spouts)
    if case == "fanout":
        for branch in range(branches):
            builder.add_bolt(f"last{branch}", counter, par=tasks, inputs={spout: Grouping.fields("word")})
    else:
        builder.add_bolt("last", counter, par=tasks, inputs={spout: Grouping.fields("word")})
    return builder


if __name__ == "topologies" and len(sys.argv) > 1:  # at submit; an instance has no arguments
    benchmark = build(**json.loads(sys.argv[1]))
