"""Views of the tracker: plans, drawing, metrics, timelines, paging, envelope and configuration."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_control.web.guard import host_of
from heron_runtime.model.masking import HIDDEN
from heron_runtime.model.plan import ContainerPlan, InstancePlan, PackingPlan, Resources
from heron_runtime.model.sketch import Sketch
from heron_runtime.model.topology import (
    ComponentKind,
    ComponentSpec,
    GroupingKind,
    GroupingSpec,
    InputSpec,
    StreamSchema,
    TopologyDefinition,
)
from heron_runtime.wire.master import MetricsReply, MetricValue, TimelineReply, TimelineSeries
from heron_runtime.wire.sketch_codec import encode_sketch
from heron_tracker.core import metrics_view
from heron_tracker.core.graph_layout import NODE_HEIGHT, NODE_WIDTH, layout_graph
from heron_tracker.core.heron_plans import component_depths, logical_plan, packing_plan
from heron_tracker.core.heron_records import decode_whole_characters, relative_log_path
from heron_tracker.core.json_values import MAX_TEXT, json_value, redact_config
from heron_tracker.core.metrics_view import (
    heron_timeline,
    match_wildcards,
    matching_series,
    time_series_request,
    timeline_request,
)
from heron_tracker.core.paging import InvalidCursor, decode_cursor, encode_cursor, take_page
from heron_tracker.responses import entity_tag, envelope, tag_matches

from heron_tracker.core.query_language import TimeSeries  # isort: skip

SHUFFLE = GroupingSpec(GroupingKind.SHUFFLE)


@st.composite
def graphs(draw: st.DrawFn) -> TopologyDefinition:
    """Draw an acyclic graph of up to 14 components."""
    size = draw(st.integers(1, 14))
    specs = []
    for n in range(size):
        sources = draw(st.sets(st.integers(0, n - 1), max_size=4)) if n else set()
        inputs = tuple(InputSpec(f"c{s}", "default", SHUFFLE) for s in sorted(sources))
        kind = ComponentKind.BOLT if inputs else ComponentKind.SPOUT
        specs.append(ComponentSpec(f"c{n}", kind, "m:C", 1, (StreamSchema(),), inputs))
    return TopologyDefinition("t", "t-1", tuple(draw(st.permutations(specs))))


@given(graphs())
def test_drawing_shows_each_component_once_without_overlap(definition: TopologyDefinition) -> None:
    drawing = layout_graph(definition)
    assert drawing == layout_graph(definition)
    assert sorted(n.name for n in drawing.nodes) == sorted(s.name for s in definition.components)
    boxes = {n.name: n for n in drawing.nodes}
    for a, b in ((a, b) for a in drawing.nodes for b in drawing.nodes if a.name < b.name):
        assert abs(a.x - b.x) >= NODE_WIDTH or abs(a.y - b.y) >= NODE_HEIGHT
    for node in drawing.nodes:
        assert 0 <= node.x <= drawing.width - NODE_WIDTH
        assert 0 <= node.y <= drawing.height - NODE_HEIGHT
    assert {(e.source, e.destination) for e in drawing.edges} == {(e.source, e.destination) for e in definition.edges()}
    for edge in drawing.edges:
        assert boxes[edge.source].layer < boxes[edge.destination].layer
        assert all(x0 <= x1 for (x0, _), (x1, _) in pairwise(edge.points))
        for x, y in edge.points[1:-1]:  # a line through a layer does not cross a box
            assert not any(n.x < x < n.x + NODE_WIDTH and n.y < y < n.y + NODE_HEIGHT for n in drawing.nodes)


@given(graphs())
def test_depth_is_the_longest_path(definition: TopologyDefinition) -> None:
    def longest(name: str) -> int:
        return max((1 + longest(i.component) for i in definition.component(name).inputs), default=0)

    expected = {spec.name: longest(spec.name) for spec in definition.components}
    assert component_depths(definition) == expected
    assert logical_plan(definition)["stages"] == max(expected.values()) + 1


def test_cycle_and_missing_source_can_be_drawn() -> None:
    inputs = (InputSpec("b", "s", SHUFFLE), InputSpec("x", "s", SHUFFLE))
    a = ComponentSpec("a", ComponentKind.BOLT, "m:A", inputs=inputs)
    b = ComponentSpec("b", ComponentKind.BOLT, "m:B", inputs=(InputSpec("a", "s", SHUFFLE),))
    assert len(layout_graph(TopologyDefinition("t", "t-1", (a, b))).nodes) == 2


def test_packing_plan_shows_disk_and_ram() -> None:
    resources = Resources(2.0, 512, 4096)
    plan = PackingPlan("t", (ContainerPlan(1, (InstancePlan(1, "word", 0, resources),), resources),))
    shown = packing_plan(TopologyDefinition("t", "t-1"), plan)
    assert shown["container_plans"][0]["scheduled_resources"] == {"cpu": 2.0, "ram": 512, "disk": 4096}


@pytest.mark.parametrize("key", ["db.password", "api_key", "AWS_SECRET_ACCESS_KEY", "oauth.token", "user.passwd"])
def test_secrets_are_redacted_at_any_depth(key: str) -> None:
    for config in ({key: "hush"}, {"topology.environment": {key: "hush"}}, {"list": [{key: ["hush"]}]}):
        assert "hush" not in json.dumps(redact_config(config))
    assert redact_config({key: None, "topology.team.name": "authors"}) == {key: None, "topology.team.name": "authors"}


def test_password_in_a_url_is_redacted() -> None:
    shown = redact_config({"user.db": "postgresql://heron:hush@db:5432/words", "plain": "http://host/a@b"})
    assert shown == {"user.db": f"postgresql://{HIDDEN}@db:5432/words", "plain": "http://host/a@b"}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(values)
def test_json_value_is_valid_json(value: object) -> None:
    json.dumps(json_value(value), allow_nan=False)
    json.dumps(redact_config({"a": value}), allow_nan=False)


@given(st.sets(st.tuples(st.text(max_size=4), st.text(max_size=4))), st.integers(1, 5))
def test_pages_return_every_item_once_in_order(keys: set[tuple[str, str]], limit: int) -> None:
    items = [(key, key) for key in sorted(keys)]
    seen, cursor = [], None
    while True:
        found = take_page(items, limit, cursor)
        assert found.total == len(keys)
        seen += found.items
        cursor = found.next
        if cursor is None:
            break
    assert seen == sorted(keys)


@given(st.lists(st.text(max_size=60), max_size=5).map(tuple))
def test_cursor_round_trips(key: tuple[str, ...]) -> None:
    assert decode_cursor(encode_cursor(key)) == key


@pytest.mark.parametrize("cursor", ["x", "!!!!", "bnVsbA", "eyJhIjoxfQ", "W1tb" * 900, "W1tb" * 9000, "\u00e4"])
def test_foreign_cursor_is_rejected(cursor: str) -> None:
    with pytest.raises(InvalidCursor):
        decode_cursor(cursor)


def test_envelope_fields_and_entity_tags() -> None:
    assert set(envelope([], "", 0.1, "1")) == {
        "status", "message", "version", "tracker_version", "executiontime", "result",
    }  # fmt: skip
    tag = entity_tag({"b": 1, "a": 2})
    assert tag == entity_tag({"a": 2, "b": 1}) != entity_tag({"a": 2})
    assert tag_matches(tag, tag)
    assert tag_matches(f'"x", {tag.removeprefix("W/")}', tag)
    assert tag_matches("*", tag)
    assert not tag_matches('"x"', tag)
    assert not tag_matches("", tag)


@given(st.lists(st.lists(st.floats(0.01, 1e5), min_size=1, max_size=30), min_size=1, max_size=4))
def test_percentiles_cover_all_values(parts: list[list[float]]) -> None:
    reported = tuple(
        MetricValue("c", f"i{n}", "__complete-latency/default", "latency", len(p), 0.0, encode_sketch(Sketch.of(p)))
        for n, p in enumerate(parts)
    )
    shown = metrics_view.heron_metrics("c", -1, MetricsReply(1.0, reported), ())
    everything = sorted(v for p in parts for v in p)
    merge_instances = shown["percentiles"]["__complete-latency/default"]["*"]
    assert merge_instances["count"] == len(everything)
    assert merge_instances["mean"] == pytest.approx(sum(everything) / len(everything), rel=0.011)
    assert merge_instances["p50"] == pytest.approx(everything[int(0.5 * (len(everything) - 1))], rel=0.011)


def test_flow_sums_streams_and_excludes_system_components() -> None:
    reply = MetricsReply(60.0, (
        MetricValue("a", "i1", "__emit-count/default", "counter", 60, 1.0),
        MetricValue("a", "i2", "__emit-count/other", "counter", 120, 2.0),
        MetricValue("a", "i2", "__fail-count/default", "counter", 3, 0.05),
        MetricValue("b", "i3", "__emit-count/default", "counter", 600, 10.0),
        MetricValue("__stmgr__", "s", "__emit-count/default", "counter", 9e9, 9e9),
    ))  # fmt: skip
    assert metrics_view.component_flows(reply, {"a": True, "b": False})["a"]["emitted"] == 180
    whole = metrics_view.summarize_topology(reply, {"a": True, "b": False})
    assert (whole["emit_rate"], whole["spout_emit_rate"], whole["failed"]) == (13, 3, 3)


def test_timeline_holds_the_requested_minutes() -> None:
    series = TimelineSeries("c", "i", "__emit-count/default", "counter", (1.0, float("nan"), 3.0, 4.0))
    reply = TimelineReply(600.0, 60.0, (series,))
    shown = heron_timeline("c", 660, 785, reply, (), as_text=False)
    assert shown["timeline"] == {"__emit-count/default": {"i": {"720": 3, "780": 4}}}
    as_text = heron_timeline("c", 601, 601, reply, ("i",), as_text=True)
    assert as_text["timeline"] == {"__emit-count/default": {"i": {"600": "1"}}}
    assert heron_timeline("c", 0, 9999, reply, ("other",), as_text=False)["timeline"] == {}
    assert timeline_request("c", (), 9_990, 10_000).interval_seconds >= 600  # coarser than 5 s
    leaf = TimeSeries("*", "*", "__emit-count/*")
    assert time_series_request(leaf, 0, 0).names == ("__emit-count",)
    assert [(s.instance, s.label) for s in matching_series(leaf, reply)] == [("i", "default")]


@given(st.text("ab*", max_size=8), st.text("ab", max_size=8))
def test_wildcards_match_like_a_regular_expression(pattern: str, text: str) -> None:
    import re

    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text)
    found = match_wildcards(pattern, text)
    assert (found is not None) == (expected is not None)
    if found is not None:
        parts = pattern.split("*")
        assert text == "".join(p + f for p, f in zip(parts, (*found, ""), strict=True))


@given(st.text(), st.integers(0, 40))
def test_parts_of_a_log_join_to_the_whole(text: str, cut: int) -> None:
    data = text.encode(errors="replace")
    first, taken = decode_whole_characters(data[:cut], last=cut >= len(data))
    assert taken > 0 or not data[:cut]
    if cut >= 4:  # a part shorter than a character cannot wait for its end
        rest, _ = decode_whole_characters(data[taken:], last=True)
        assert (first + rest).encode() == data


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("localhost:8888", "localhost"), ("127.0.0.1", "127.0.0.1"), ("[::1]:8888", "::1"), ("LocalHost.", "localhost"),
        ("localhost@evil.example", None), ("evil.example/localhost", None), ("localhost:x", None), ("", None),
        ("localhost:8888?x", None), ("[::1", None),
    ],
)  # fmt: skip
def test_host_header_is_parsed_strictly(header: str, host: str | None) -> None:
    assert host_of(header) == host


@pytest.mark.parametrize("text", ["a" * 1_000_000, "a://" + ":" * 1_000_000, "a://" * 300_000, "a:@://" * 200_000])
def test_long_configuration_text_is_abbreviated_quickly(text: str) -> None:
    assert len(redact_config({"user.text": text})["user.text"]) <= MAX_TEXT + 1


@pytest.mark.parametrize("user", ["heron:hush", "heron:hush@hush", ":hush", "he:ro:hush"])
def test_passwords_of_all_urls_in_a_value_are_redacted(user: str) -> None:
    shown = redact_config({"user.list": f"redis://{user}@one/0,redis://{user}@two/1 and ftp://plain@host"})
    assert shown == {"user.list": f"redis://{HIDDEN}@one/0,redis://{HIDDEN}@two/1 and ftp://{HIDDEN}@host"}


@pytest.mark.parametrize("path", ["", ".", "./", "./log-files", "log-files", "./log-files/", "log-files/"])
def test_log_paths_accept_the_spellings_of_heron_scripts(path: str) -> None:
    assert relative_log_path(path) == ""
    assert relative_log_path("./log-files/a.log") == relative_log_path("a.log") == "a.log"
