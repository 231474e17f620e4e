"""Task hooks, and the input metrics of a task to the nanosecond."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.task_metrics import InputMetrics
from heron_instance.core.user_code import Hooks
from heron_runtime.model.dataflow import FailKind, FailReason
from heronry.api.hooks import (
    BoltAckInfo,
    BoltExecuteInfo,
    BoltFailInfo,
    EmitInfo,
    SpoutAckInfo,
    SpoutFailInfo,
    TaskHook,
)
from heronry.api.tuples import Tuple, tick_tuple


def test_hook_that_raises_in_clean_up_does_not_stop_others(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []

    class Raises(TaskHook):
        def clean_up(self) -> None:
            ended.append("raises")
            raise OSError("it was closed before")

    class Ends(TaskHook):
        def clean_up(self) -> None:
            ended.append("ends")

    context: Any = SimpleNamespace(hooks=[Raises(), Ends()])
    Hooks(context, 1, lambda name, n: None, lambda: 0.0).clean_up()
    assert ended == ["raises", "ends"]
    assert "task hook Raises.clean_up raised" in caplog.text


def test_each_exception_of_a_hook_is_counted() -> None:
    class Raises(TaskHook):
        def spout_ack(self, info: Any) -> None:
            raise OSError("no")

    counted: Counter[str] = Counter()
    context: Any = SimpleNamespace(hooks=[Raises(), TaskHook(), Raises()])
    Hooks(context, 1, lambda name, n: counted.update({name: int(n)}), lambda: 0.0).spout_ack(7, 1.0)
    assert counted == {"__hook-exception-count": 2}


def test_fail_latency_counts_from_arrival() -> None:
    means: dict[str, tuple[float, float]] = {}
    telemetry: Any = SimpleNamespace(latency=lambda name, ms, weight: means.update({name: (ms, weight)}))
    InputMetrics(lambda name, by: None, telemetry).count_failed(
        {("s", "default", 1_000.0, FailKind.FAILED): 3}, 1_250.0
    )
    assert means == {"__fail-latency/s/default": (250.0, 3)}


@given(st.integers(1, 1000), st.integers(0, 60_000), st.integers(0, 60_000))
def test_times_are_counted_in_nanoseconds_and_means_are_weighted(n: int, elapsed_ms: int, waited_ms: int) -> None:
    counted: Counter[str] = Counter()
    means: dict[str, tuple[float, float]] = {}
    telemetry: Any = SimpleNamespace(latency=lambda name, ms, weight: means.update({name: (ms, weight)}))
    figures = InputMetrics(lambda name, by: counted.update({name: by}), telemetry)
    figures.count_executed(("s", "default"), n, elapsed_ms, waited_ms)
    assert counted == {"__execute-count/s/default": n, "__execute-time-ns/s/default": elapsed_ms * 1_000_000}
    figures.count_decoded(("s", "default"), n)
    assert counted["__tuple-deserialization-time-ns/s/default"] == n * 1_000_000_000
    assert means == {
        "__execute-latency/s/default": (elapsed_ms / n, n),
        "__queue-latency/s/default": (waited_ms, n),
    }


def test_hooks_receive_complete_information() -> None:
    seen: list[Any] = []

    def notes(self: Any, info: Any) -> None:
        seen.append(info)

    methods = ("emit", "spout_ack", "spout_fail", "bolt_execute", "bolt_ack", "bolt_fail")
    hook = type("Notes", (TaskHook,), dict.fromkeys(methods, notes))()
    context: Any = SimpleNamespace(hooks=[])
    hooks = Hooks(context, 4, lambda name, n: None, lambda: 3.0)
    assert not hooks
    context.hooks.append(hook)
    assert hooks
    batch: Any = SimpleNamespace(arrived_ms=2750.0)
    tup, tick, reason = Tuple((1,), 0, batch), tick_tuple(1), FailReason(FailKind.FAILED, "b", 2, "no")
    assert hooks.spout_emits((1,), "id", "odd", 7) is True
    assert hooks.bolt_emits((1,), [tup], "odd", 7) is True
    hooks.spout_ack("id", 12.5)
    hooks.spout_fail("id", 12.5, reason)
    hooks.bolt_execute(tup, 1.5)
    hooks.bolt_ack(tup)
    hooks.bolt_fail(tup)
    hooks.bolt_ack(tick)
    assert seen == [
        EmitInfo((1,), "odd", 4, "id", 7), EmitInfo((1,), "odd", 4, None, 7), SpoutAckInfo("id", 4, 12.5),
        SpoutFailInfo("id", 4, 12.5, reason), BoltExecuteInfo(tup, 4, 1.5), BoltAckInfo(tup, 4, 250.0),
        BoltFailInfo(tup, 4, 250.0), BoltAckInfo(tick, 4, 0.0),
    ]  # fmt: skip
