"""Hooks of a task at its end, and the figures of its input: to the last nanosecond."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.hooks import Hooks
from heron_instance.core.input_figures import InputFigures
from heron_runtime.model.reasons import FailKind
from heronry.api.hooks import TaskHook


def test_a_hook_that_raises_at_the_end_keeps_no_other_from_it(caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_tuple_has_failed_after_the_time_since_it_arrived() -> None:
    means: dict[str, tuple[float, float]] = {}
    telemetry: Any = SimpleNamespace(latency=lambda name, ms, weight: means.update({name: (ms, weight)}))
    InputFigures(lambda name, by: None, telemetry).failed({("s", "default", 1_000.0, FailKind.FAILED): 3}, 1_250.0)
    assert means == {"__fail-latency/s/default": (250.0, 3)}


@given(st.integers(1, 1000), st.integers(0, 60_000), st.integers(0, 60_000))
def test_times_are_counted_in_nanoseconds_and_means_are_weighted(n: int, elapsed_ms: int, waited_ms: int) -> None:
    counted: Counter[str] = Counter()
    means: dict[str, tuple[float, float]] = {}
    telemetry: Any = SimpleNamespace(latency=lambda name, ms, weight: means.update({name: (ms, weight)}))
    figures = InputFigures(lambda name, by: counted.update({name: by}), telemetry)
    figures.executed(("s", "default"), n, elapsed_ms, waited_ms)
    assert counted == {"__execute-count/s/default": n, "__execute-time-ns/s/default": elapsed_ms * 1_000_000}
    figures.decoded(("s", "default"), n)
    assert counted["__tuple-deserialization-time-ns/s/default"] == n * 1_000_000_000
    assert means == {
        "__execute-latency/s/default": (elapsed_ms / n, n),
        "__queue-latency/s/default": (waited_ms, n),
    }
