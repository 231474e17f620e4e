"""One spout executor, driven step by step."""

from __future__ import annotations

from typing import Any

import numpy as np

from heron_instance.core.executor import RunResult
from heron_instance.core.spout_executor import SpoutExecutor
from heron_runtime.wire.data import Reason, Verdict
from heronry.api.component import BasicBolt, Spout
from tests.support.harness.executors import SHUFFLE, ExecutorHarness, Part


class Source(Spout):
    """Spout that emits ``each`` tuples per call until ``total``."""

    each = 1
    total = 10**9
    payload = "x"

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.n = self.calls = 0
        self.acked: list[Any] = []
        self.failed: list[Any] = []
        self.said: list[str] = []
        self.context = context

    def next_tuple(self) -> None:
        self.calls += 1
        for _ in range(self.each):
            if self.n < self.total:
                self.emit([self.payload], tup_id=self.n)
                self.n += 1

    def ack(self, tup_id: Any) -> None:
        self.acked.append(tup_id)

    def fail(self, tup_id: Any, reason: Any) -> None:
        self.failed.append((tup_id, reason.kind))

    def activate(self) -> None:
        self.said.append("activate")

    def deactivate(self) -> None:
        self.said.append("deactivate")


class Nothing(BasicBolt):
    def process(self, tup: Any) -> None:
        pass


class SingleSpout:
    """Spout executor without readers."""

    def __init__(self, config: dict[str, Any] | None = None, **attributes: Any) -> None:
        make = type("Spout", (Source,), attributes)
        self.world = ExecutorHarness(
            {"s": Part(make, 1, {"default": ["x"]}), "r": Part(Nothing, 1, {}, [("s", "default", SHUFFLE)])}, config
        )
        self.executor: SpoutExecutor = self.world.executors[1]  # type: ignore[assignment]
        self.spout: Any = self.world.components[1]
        self.roots: list[int] = []

    def step(self, after_ms: float = 1.0) -> RunResult:
        self.world.clock.now += after_ms / 1000
        step = self.executor.run(self.world.clock.ms)
        self.executor.check()
        for flush in step.flushes:
            for init in flush.inits:
                self.roots += range(init.first_root, init.first_root + len(init.xors) // 8)
            copies = [r for f in flush.frames for r in np.frombuffer(f.roots, "<u8").tolist()]
            assert set(copies) <= set(self.roots), "a copy leaves before its init"
        return step

    def drain(self) -> None:
        """Mark all output as sent by the gateway."""
        self.executor.on_sent(self.world.clock.ms, 1 << 40)

    def verdict(self, roots: list[int], reason: Reason | None = None) -> None:
        self.executor.on_verdicts(self.world.clock.ms, [Verdict(1, np.array(roots, np.uint64).tobytes(), reason)])
