"""Metrics as the command shows them."""

from __future__ import annotations

from heron_control.inspection.metrics_table import as_json, detail_rows, document, flow_rows
from heron_runtime.model.sketch import Sketch
from heron_runtime.wire.master import MetricsReply, MetricValue
from heron_runtime.wire.sketch_codec import encode_sketch

FAST, SLOW = encode_sketch(Sketch.of([1.0] * 90)), encode_sketch(Sketch.of([50.0] * 10))
REPLY = MetricsReply(
    10.0,
    (
        MetricValue("word", "container_1_word_1", "__emit-count/default", "counter", 100.0, 10.0),
        MetricValue("word", "container_1_word_1", "__emit-count/errors", "counter", 5.0, 0.5),
        MetricValue("count", "container_2_count_2", "__execute-count/word/default", "counter", 60.0, 6.0),
        MetricValue("count", "container_2_count_3", "__execute-count/word/default", "counter", 40.0, 4.0),
        MetricValue("count", "container_2_count_2", "__process-latency/word/default", "latency", 90.0, 9.0, FAST),
        MetricValue("count", "container_2_count_2", "__queue-latency/word/default", "latency", 90.0, 9.0, SLOW),
        MetricValue("count", "container_2_count_2", "__execute-latency/word/default", "latency", 90.0, 9.0, FAST),
        MetricValue("count", "container_2_count_3", "__process-latency/word/default", "latency", 10.0, 1.0, SLOW),
        MetricValue("__stmgr__", "stream_manager-1", "user-metric", "gauge", 3.0, 0.0),
    ),
)


def test_json_sums_over_instances_and_keeps_them() -> None:
    data = as_json("words", REPLY)
    assert (data["topology"], data["interval"]) == ("words", 10.0)
    executed = data["components"]["count"]["__execute-count/word/default"]
    assert executed == {
        "total": 100.0,
        "rate": 10.0,
        "instances": {
            "container_2_count_2": {"total": 60.0, "rate": 6.0},
            "container_2_count_3": {"total": 40.0, "rate": 4.0},
        },
    }
    latency = data["components"]["count"]["__process-latency/word/default"]
    assert latency["total"] == 100.0
    assert abs(latency["p50"] - 1.0) < 0.05
    assert abs(latency["p99"] - 50.0) < 1.0
    assert abs(latency["instances"]["container_2_count_2"]["p99"] - 1.0) < 0.05


def test_metrics_are_selected_with_or_without_their_key() -> None:
    for wanted in ("__emit-count", "__emit-count/default"):
        assert list(as_json("words", REPLY, [wanted])["components"]) == ["word"]
    assert list(as_json("words", REPLY, ["__emit-count/errors"])["components"]["word"]) == ["__emit-count/errors"]


def test_table_has_a_row_for_each_component() -> None:
    rows = flow_rows(document("words", REPLY, {"word": True, "count": False, "silent": False}))
    assert rows[0][:5] == ["word", "105", None, None, None]
    assert rows[1][:5] == ["count", None, "100", None, None]
    assert rows[1][6] == "10"
    wait, execute = (float(str(cell).split(" / ")[0]) for cell in rows[1][7:9])
    assert (round(wait), round(execute)) == (50, 1)
    assert rows[1][9] is None
    assert rows[2] == ["silent", *[None] * 9]


def test_detail_rows_name_instances() -> None:
    rows = detail_rows(as_json("words", REPLY, ["__process-latency"]))
    assert [row[1] for row in rows] == ["container_2_count_2", "container_2_count_3"]
    own = ["__stmgr__", "stream_manager-1", "user-metric", "3", "0", None, None]
    assert detail_rows(as_json("words", REPLY, ["user-metric"])) == [own]
