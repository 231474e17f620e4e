"""User-facing classes without a runtime: error messages, recorder, tuples, metrics and context."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest

from heron_runtime.model.plan import ContainerPlan, InstancePlan, PackingPlan, PhysicalPlan, PlanVersion
from heron_runtime.model.topology import (
    ComponentKind,
    ComponentSpec,
    GroupingKind,
    GroupingSpec,
    InputSpec,
    StreamSchema,
    TopologyDefinition,
)
from heronry.api.component import BasicBolt, BatchBolt, Bolt, Spout, is_state_replaced
from heronry.api.context import TopologyContext
from heronry.api.hooks import TaskHook
from heronry.api.metrics import (
    CountMetric,
    GaugeMetric,
    LatencyMetric,
    MeanMetric,
    MultiCountMetric,
)
from heronry.api.tuples import Tuple, TupleBatch
from heronry.testing import Recorder


class Split(Bolt):
    outputs = ["word"]

    def process(self, tup: Tuple) -> None:
        for word in tup["line"].split():
            self.emit([word], anchors=[tup])
        self.ack(tup)


def test_emit_without_a_runtime_names_the_recorder() -> None:
    with pytest.raises(RuntimeError, match=r"Recorder\.attach"):
        Split().process(Tuple.of(["a b"], ["line"]))


def test_recorder_replaces_the_runtime() -> None:
    bolt = Split()
    recorder = Recorder.attach(bolt)
    tup = Tuple.of(["to be"], ["line"])
    bolt.process(tup)
    assert recorder.values() == [("to",), ("be",)]
    assert recorder.emitted[0].anchors == (tup,)
    assert recorder.acked == [tup]
    bolt.fail(tup, "no")
    assert recorder.failed == [(tup, "no")]


def test_spout_is_recorded_and_emit_accepts_both_argument_names() -> None:
    class Source(Spout):
        def next_tuple(self) -> None:
            self.emit(tup=["a"], tup_id=1)
            self.emit(values=["b"], stream="other")
            self.emit_many([["c"], ["d"]], [3, 4])

    spout = Source()
    recorder = Recorder.attach(spout)
    spout.next_tuple()
    assert [(e.values, e.stream, e.tup_id) for e in recorder.emitted] == [
        (("a",), "default", 1),
        (("b",), "other", None),
        (("c",), "default", 3),
        (("d",), "default", 4),
    ]


def test_overridden_emit_is_called_first() -> None:
    class Loud(BasicBolt):
        def emit(self, values: Any = None, *args: Any, **kwargs: Any) -> Any:
            return super().emit([str(v).upper() for v in values], *args, **kwargs)

        def process(self, tup: Tuple) -> None:
            self.emit(tup.values)

    bolt = Loud()
    recorder = Recorder.attach(bolt)
    bolt.process(Tuple.of(["x"]))
    assert recorder.values() == [("X",)]


def test_user_class_may_use_any_method_name() -> None:
    class Own(BasicBolt):
        def keep(self) -> str:
            return "kept"

        def attach(self) -> str:
            return "attached"

        def has_replaced(self) -> str:
            return "replaced"

        def process(self, tup: Tuple) -> None:
            self.state["n"] = 1
            self.emit([self.keep(), self.attach(), self.has_replaced()])

    bolt = Own()
    recorder = Recorder.attach(bolt)
    bolt.process(Tuple.of(["x"]))
    assert recorder.values() == [("kept", "attached", "replaced")]
    assert not is_state_replaced(bolt, bolt.state)


def test_recorded_spout_owns_all_its_splits() -> None:
    class Source(Spout):
        def splits(self) -> list[str | tuple[str, int]]:
            return ["a", ("b", 3)]

        def next_tuple(self) -> None:
            for split in self.owned_splits():
                self.emit([split])

    spout = Source()
    recorder = Recorder.attach(spout)
    spout.next_tuple()
    assert recorder.values() == [("a",), ("b",)]


def test_missing_methods_are_named() -> None:
    with pytest.raises(NotImplementedError, match="Spout has no next_tuple"):
        Spout().next_tuple()
    with pytest.raises(NotImplementedError, match="BatchBolt has no process_batch"):
        BatchBolt().process_batch(TupleBatch.of([]))


def test_class_creates_its_spec() -> None:
    spec = Split.spec(name="split", par=2)
    assert spec.component_class is Split
    assert (spec.name, spec.par) == ("split", 2)


def test_log_uses_the_component_name(caplog: pytest.LogCaptureFixture) -> None:
    bolt = Split()
    Recorder.attach(bolt)
    with caplog.at_level(logging.INFO):
        bolt.log.info("hello")
        bolt.logger.info("again")
    assert [record.name for record in caplog.records] == ["Split", "Split"]


def test_tuple_has_values_fields_and_source() -> None:
    tup = Tuple.of(["a", 2], ["word", "n"], component="c", stream="s", task=7)
    assert (tup["word"], tup[1], tup.get("n"), tup.get("x", 5)) == ("a", 2, 2, 5)
    assert (tup.component, tup.stream, tup.task, tup.fields, len(tup), list(tup)) == (
        "c",
        "s",
        7,
        ("word", "n"),
        2,
        ["a", 2],
    )
    with pytest.raises(KeyError, match="fields: word, n"):
        tup["nope"]
    assert "c/s" in repr(tup)


def test_batch_is_a_lazy_sequence() -> None:
    batch = TupleBatch.of([["a", 1], ["b", 2], ["a", 3]], ["word", "n"])
    assert len(batch) == 3
    assert batch.rows == [("a", 1), ("b", 2), ("a", 3)]
    assert Counter(batch.column("word")) == {"a": 2, "b": 1}
    assert batch.column(1) == [1, 2, 3]
    assert [tup["n"] for tup in batch] == [1, 2, 3]
    assert batch[-1] == list(batch)[2]
    assert batch[0] != batch[1]
    assert len({*batch, *batch}) == 3
    assert [tup[0] for tup in batch[1:]] == ["b", "a"]
    assert batch.as_dicts()[0] == {"word": "a", "n": 1}
    with pytest.raises(KeyError):
        batch.column("x")


class Told:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.gauges: dict[str, float] = {}
        self.weights: Counter[str] = Counter()

    def count(self, name: str, n: float = 1) -> None:
        self.counts[name] += n  # type: ignore[assignment]

    def gauge(self, name: str, value: float) -> None:
        self.gauges[name] = value

    def latency(self, name: str, milliseconds: float, weight: float = 1) -> None:
        self.weights[name] += weight  # type: ignore[assignment]


def test_metrics_report_only_new_values() -> None:
    told = Told()
    count, many, gauge, mean, took = CountMetric(), MultiCountMetric(), GaugeMetric(), MeanMetric(), LatencyMetric()
    for _ in range(2):
        count.incr(3)
        many.incr("k")
        gauge.set(4)
        mean.update(2)
        mean.update(4)
        for ms in (1.0, 10.0, 100.0):
            took.update(ms)
        for name, metric in {"c": count, "m": many, "g": gauge, "a": mean, "t": took}.items():
            metric.collect(name, told)
            metric.collect(name, told)
    assert told.counts == {"c": 6, "m/k": 2}
    assert told.gauges == {"g": 4, "a": 3}
    assert told.weights == {"t": 6}
    assert took.quantile(0.5) == pytest.approx(10, rel=0.02)
    assert many.get_value() == {"k": 2}
    with pytest.raises(ValueError, match="GaugeMetric"):
        count.incr(-1)


def test_keyed_counters_are_bounded() -> None:
    many = MultiCountMetric()
    for key in range(3000):
        many.incr(str(key))
    assert len(many.get_value()) == 1025
    assert many.get_value()["__other"] == 3000 - 1024


def make_context() -> TopologyContext:
    components = (
        ComponentSpec("s", ComponentKind.SPOUT, "m:S", 1, (StreamSchema("default", ("w",)),)),
        ComponentSpec(
            "b",
            ComponentKind.BOLT,
            "m:B",
            2,
            (),
            (InputSpec("s", "default", GroupingSpec(GroupingKind.FIELDS, ("w",))),),
        ),
    )
    instances = (InstancePlan(1, "s", 0), InstancePlan(2, "b", 0), InstancePlan(3, "b", 1))
    packing = PackingPlan("t", (ContainerPlan(1, instances),))
    topology = TopologyDefinition("t", "t-1", components, {"topology.debug": True})
    return TopologyContext(PhysicalPlan(PlanVersion(), 1, topology, packing), 3, {"user.x": 1})


def test_context_answers_from_the_plan() -> None:
    context = make_context()
    assert context.get_topology_name() == "t"
    assert (context.get_component_id(), context.get_task_id(), context.get_task_index()) == ("b", 3, 1)
    assert context.get_component_tasks("b") == [2, 3]
    assert context.get_sources() == {("s", "default"): "fields"}
    assert context.get_targets("s") == {"default": {"b": "fields"}}
    assert context.get_fields("s", "default") == ("w",)
    assert context.get_task_to_component_map() == {1: "s", 2: "b", 3: "b"}
    assert context.get_cluster_config() == {"user.x": 1}
    assert context.get_container_id() == 1


def test_registered_metrics_and_hooks_are_validated() -> None:
    context = make_context()
    metric = context.register_metric("mine", CountMetric(), 60)
    assert context.metrics == {"mine": metric}
    with pytest.raises(ValueError, match="already"):
        context.register_metric("mine", CountMetric())
    with pytest.raises(ValueError, match="underscores"):
        context.register_metric("__x", CountMetric())
    with pytest.raises(TypeError, match="CountMetric"):
        context.register_metric("other", 5)
    with pytest.raises(TypeError, match="TaskHook"):
        context.add_task_hook(5)  # type: ignore[arg-type]
    prepared: list[Any] = []

    class Hook(TaskHook):
        def prepare(self, config: dict[str, Any], context: Any) -> None:
            prepared.append(config)

    context.add_task_hook(Hook())
    assert prepared == [{"user.x": 1}]
    context.wake_up()
