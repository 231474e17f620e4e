"""Rejection of emits from threads other than the task's own in a stateful topology."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from heron_instance.core.emit_gate import EmitThreadGuard, ForeignThreadEmit
from heron_instance.core.output_streams import OutputStream
from heron_instance.shell.main import ProcessThreads
from heronry.api.component import BasicBolt, Spout
from tests.support.harness.executors import SHUFFLE, ExecutorHarness, Part
from tests.support.harness.stateful_executors import StatefulExecutorHarness

SPOUT, BOLT = 1, 2
OWN, OTHER = 7, 8


class Told:
    """Scripted view of the process's threads."""

    def __init__(self) -> None:
        self.on, self.alive = OWN, 3

    def current(self) -> int:
        return self.on

    def name(self) -> str:
        return "consumer" if self.on == OTHER else "main"

    def count(self) -> int:
        return self.alive


class Source(Spout):
    """Spout that emits ``rows`` numbers in each call and then calls ``inside`` within the call."""

    outputs = ("n",)
    rows = 0
    inside: Callable[[], None] = staticmethod(lambda: None)

    def next_tuple(self) -> None:
        for n in range(self.rows):
            self.emit((n,))
        self.inside()


class Kept(BasicBolt):
    outputs = ()

    def process(self, tup: Any) -> None:
        pass


def world_of(threads: Any, made: Any = StatefulExecutorHarness) -> tuple[Any, Source]:
    source = Source()
    parts = {
        "source": Part(lambda: source, outputs={"default": ("n",), "more": ("n",)}),
        "bolt": Part(Kept, inputs=[("source", "default", SHUFFLE), ("source", "more", SHUFFLE)]),
    }
    return (made(parts, threads=threads) if made is StatefulExecutorHarness else made(parts)), source


EMITS: tuple[Callable[[Source], object], ...] = (
    lambda source: source.emit((9,)),
    lambda source: source.emit_many([(9,), (9,)]),
    lambda source: source.emit((9,), stream="more"),
)


def refused(threads: Told, emit: Callable[[], object]) -> None:
    """Assert that an emit from another thread raises and names the thread and the component."""
    threads.on = OTHER
    error: ForeignThreadEmit | None = None
    try:
        emit()
    except ForeignThreadEmit as raised:
        error = raised
    finally:
        threads.on = OWN
    assert error is not None, "another thread has emitted"
    assert re.match(
        r"component 'source', stream '\w+': thread 'consumer' has emitted.*SimpleQueue", error.message, re.DOTALL
    )


def fails(world: Any) -> None:
    """Assert that the task's next step fails with the error the thread received."""
    assert world.wakes
    world.executors[SPOUT].on_wake(world.clock.ms)
    world.step(SPOUT)
    assert "thread 'consumer' has emitted" in str(world.executors[SPOUT].failed)
    assert world.telemetry[SPOUT].exceptions == ["ForeignThreadEmit"]


@pytest.mark.parametrize("emit", EMITS)
def test_foreign_emit_between_calls_is_rejected(emit: Callable[[Source], object]) -> None:
    threads = Told()
    world, source = world_of(threads)
    world.run()
    refused(threads, lambda: emit(source))
    fails(world)


@pytest.mark.parametrize("emit", EMITS)
def test_foreign_emit_during_a_call_is_rejected_once_user_threads_exist(emit: Callable[[Source], object]) -> None:
    threads = Told()
    world, source = world_of(threads)
    threads.alive += 1
    source.rows = 5
    source.inside = lambda: refused(threads, lambda: emit(source))
    world.step(SPOUT)
    fails(world)


def test_ended_library_threads_do_not_enable_the_check() -> None:
    """The guard checks every emit only while more threads run than at the start."""
    threads = Told()
    own = EmitThreadGuard("source", threads, lambda out, rows: None, None)
    for alive, checks_every_emit in ((2, False), (3, False), (4, True), (3, False)):
        threads.alive = alive
        own.between_calls()
        assert own.checks_every_emit is checks_every_emit


def test_own_emits_are_unaffected_by_idle_threads() -> None:
    """Compares a stateful executor with idle extra threads to an executor without state."""
    sent, looks = [], []
    for made in (ExecutorHarness, StatefulExecutorHarness):
        threads, counted = Told(), [0]
        with pytest.MonkeyPatch.context() as patch:
            look = made_look(counted)
            patch.setattr("heron_instance.core.emit_gate.EmitGate.admit", look)
            world, source = world_of(threads, made)
            threads.alive += made is StatefulExecutorHarness
            source.rows = 3000
            for _ in range(3):
                world.step(SPOUT)
                source.emit_many([(n,) for n in range(10)])
                world.step(SPOUT)
        sent.append(sum(frame.count for frames in world.wires.values() for frame in frames))
        looks.append(counted[0])
        assert world.executors[SPOUT].failed is None
    assert sent[0] == sent[1] > 18_000
    assert looks[0] <= looks[1] <= looks[0] + 12


def made_look(counted: list[int]) -> Callable[..., None]:
    """Return the gate's check, wrapped to count its calls."""
    from heron_instance.core.emit_gate import EmitGate

    real = EmitGate.admit

    def look(self: Any, out: OutputStream, rows: int) -> None:
        counted[0] += 1
        real(self, out, rows)

    return look


def test_guard_is_disabled_after_user_threads_end() -> None:
    threads = Told()
    world, _ = world_of(threads)
    out = world.executors[SPOUT].collector.streams["default"]
    for alive, dear in ((4, True), (3, False)):
        threads.alive = alive
        world.step(SPOUT)
        world.executors[SPOUT].task.component.emit((1,))
        assert (out.gate_at == 0) is dear
        world.clock.now += 1
        world.step(SPOUT)


def test_emit_of_a_real_thread_is_rejected_and_fails_the_task() -> None:
    world, source = world_of(ProcessThreads())
    told: list[BaseException] = []
    go, gone = threading.Event(), threading.Event()

    def consume() -> None:
        go.wait(30)
        try:
            source.emit((9,))
        except ForeignThreadEmit as error:
            told.append(error)
        gone.set()

    thread = threading.Thread(target=consume, name="consumer")
    thread.start()
    world.step(SPOUT)
    source.rows = 2
    source.inside = lambda: (go.set(), gone.wait(30), None)[-1]
    world.clock.now += 1  # an idle spout is polled only after a delay
    world.step(SPOUT)
    assert gone.is_set(), "it was asked"
    thread.join(30)
    assert len(told) == 1
    world.step(SPOUT)
    assert "thread 'consumer' has emitted" in str(world.executors[SPOUT].failed)
