"""One bolt executor, driven step by step."""

from __future__ import annotations

from typing import Any

import numpy as np

from heron_instance.core.bolt_executor import BoltExecutor
from heron_instance.core.executor import RunResult
from heron_instance.core.outbox import Flush
from heron_runtime.model.ids import root_base
from heron_runtime.wire.data import Frame
from heronry.api.component import BasicBolt, Bolt, Spout
from tests.support.harness.executors import SHUFFLE, ExecutorHarness, Part, fields


class Idle(Spout):
    def next_tuple(self) -> None:
        pass


class SingleBolt:
    """Bolt executor driven step by step; ``readers`` tasks read it."""

    def __init__(self, bolt: type[Bolt], config: dict[str, Any] | None = None, readers: int = 1, seed: int = 0) -> None:
        class Sink(BasicBolt):
            def process(self, tup: Any) -> None:
                pass

        self.world = ExecutorHarness(
            {
                "s": Part(Idle, 1, {"default": ["n"], "odd": ["n", "m"]}),
                "b": Part(bolt, 1, {"default": ["n"]}, [("s", "default", SHUFFLE), ("s", "odd", SHUFFLE)]),
                "r": Part(Sink, readers, {}, [("b", "default", fields("n"))]),
            },
            config,
            seed,
        )
        self.bolt: Any = self.world.components[2]
        self.next_root = 0

    @property
    def executor(self) -> BoltExecutor:
        executor = self.world.executors[2]
        assert isinstance(executor, BoltExecutor)
        return executor

    def frame(self, rows: list[tuple[Any, ...]], stream: str = "default", tracked: bool = True) -> Frame:
        codec, data = self.executor.task.codec.encode(rows)
        number = self.world.plan.stream_number["s", stream]
        frame = Frame(1, number, 2, len(rows), 1, int(codec), data)
        if tracked:
            first = root_base(1, 5) + self.next_root
            self.next_root += len(rows)
            frame.roots = (np.arange(len(rows), dtype=np.uint64) + np.uint64(first)).tobytes()
            frame.keys = np.random.default_rng(first).bytes(8 * len(rows))
        return frame

    def feed(self, *frames: Frame) -> None:
        self.executor.on_frames(self.world.clock.ms, list(frames))

    def step(self, after_ms: float = 1.0) -> RunResult:
        self.world.clock.now += after_ms / 1000
        step = self.executor.run(self.world.clock.ms)
        self.executor.check()
        return step

    def all(self) -> list[Flush]:
        flushes = self.step().flushes
        while self.executor.data_in.size or self.executor._work is not None or self.executor.output.unsent():
            flushes += self.step().flushes
        return flushes

    def read(self, *frames: Frame) -> list[Flush]:
        """Feed the frames and return all flushes."""
        self.feed(*frames)
        return self.all()
