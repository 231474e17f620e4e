"""Merged views over REST: both layers, one key, what is not there, what makes no sense."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from played_topology import until
from tracker_process import TrackerProcess, tracker
from view_rows import write_rows

from heron_control.inspection.stream_runs import claimed
from heron_runtime.state import open_store
from heronry.pipeline.registry import Registered, register
from heronry.pipeline.rows import row_of
from heronry.pipeline.views import Description, describe_view
from heronry.streamlet.monoid import count

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install heronry[archive]")
pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackerProcess]:
    """A tracker in a home with one view: batch up to 10 ms, online behind."""
    home = tmp_path_factory.mktemp("home")
    view = home / "data"
    describe_view(view, Description("clicks", "p", "s", 10, "count"))
    version = view / "batch" / "000001"
    write_rows(
        version / "part.parquet", [row_of(key, 0, 10, n, count()) for key, n in (("a", 5), (1, 6), (("x", 2), 7))]
    )
    (version / "_heronry.json").write_text(json.dumps({"to_ms": 10}))
    online = view / "online" / "10" / "0.msgpack"
    online.parent.mkdir(parents=True)
    head = {"view": "clicks", "monoid": "count", "parameters": {}, "bucket_ms": 10, "length_ms": None, "written_ms": 1}
    online.write_bytes(msgspec.msgpack.encode({**head, "rows": [["a", 10, 3], ["1", 10, 4]]}))
    register(Registered("clicks", str(view)), home)
    register(Registered("gone", str(home / "nowhere")), home)
    store = open_store(f"files://{home}/state")
    store.open()
    store.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HERONRY_HOME", str(home))
        with tracker("--cluster", f"local=files://{home}/state", log=home / "tracker.log") as process:
            until(lambda: process.raw("/readyz")[0] == 200)
            yield process


def test_views_are_listed_with_t(views: TrackerProcess) -> None:
    assert views.result("/views") == {"clicks": {"to": 10}}


def test_streaming_runs_are_listed_while_they_live(views: TrackerProcess) -> None:
    folder = Path(os.environ["HERONRY_HOME"]) / "pipeline" / "runs"
    about = {"file": "/p.py", "master": "local[2]", "checkpoint": "/c", "output": "/o", "every_seconds": 1.0}
    with claimed("words", folder, **about) as claim:
        claim.tell(state="waiting", micro_batch=2, rows=10, batch_seconds=2.0)
        (found,) = views.result("/pipeline/runs")
        assert (found["name"], found["micro_batch"], found["input_rate"]) == ("words", 2, 5.0)
    assert views.result("/pipeline/runs") == []


def test_the_answer_merges_both_layers(views: TrackerProcess) -> None:
    found = views.result("/views/clicks")
    assert {json.dumps(each["key"]): each["value"] for each in found["totals"]} == {
        '"a"': 8, "1": 6, '["x", 2]': 7, '"1"': 4,
    }  # fmt: skip
    assert [(b["start"], b["owner"]) for b in found["buckets"] if b["key"] == "a"] == [(0, "batch"), (10, "online")]
    assert (found["to"], found["reducer"], found["bucket_ms"], found["truncated"]) == (10, "count", 10, False)
    assert "each record counts once" in found["promise"]
    assert views.result("/views/clicks", limit=1)["truncated"] is True


@pytest.mark.parametrize(
    ("key", "totals"),
    [("a", [8]), ('"a"', [8]), ("1", [6, 4]), ('"1"', [4]), ('["x", 2]', [7]), ("nobody", []), ("null", [])],
)
def test_a_key_is_json_or_a_text(views: TrackerProcess, key: str, totals: list[int]) -> None:
    assert [each["value"] for each in views.result("/views/clicks", key=key)["totals"]] == totals


def test_a_range_of_buckets(views: TrackerProcess) -> None:
    assert [b["owner"] for b in views.result("/views/clicks", key="a", **{"from": 10})["buckets"]] == ["online"]
    assert [b["owner"] for b in views.result("/views/clicks", key="a", to=10)["buckets"]] == ["batch"]


def test_what_is_not_there_and_what_makes_no_sense(views: TrackerProcess) -> None:
    for path in ("/views/nothing", "/views/gone", "/views/..%2fclicks"):
        assert views.get(path)[0] == 404, path
    for parameters in ({"key": '{"a": 1}'}, {"from": 5, "to": 1}, {"from": "x"}, {"limit": 0}):
        assert views.get("/views/clicks", **parameters)[0] == 422, parameters
