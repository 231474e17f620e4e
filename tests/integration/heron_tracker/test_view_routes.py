"""Merged views over REST: both layers, single keys, missing views and invalid requests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from heron_control.inspection.streaming_runs import claimed
from heron_runtime.state import open_store
from heronry.pipeline.registry import Registered, register
from heronry.pipeline.rows import row_of
from heronry.pipeline.views import Description, describe_view
from heronry.streamlet.monoid import count
from tests.support.tracker_process import TrackerProcess, tracker
from tests.support.view_files import write_rows
from tests.support.waiting import wait_until

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install heronry[archive]")


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackerProcess]:
    """Yield a tracker in a home with one view: batch up to 10 ms, online from there."""
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
            wait_until(lambda: process.raw("/readyz")[0] == 200)
            yield process


def test_list_of_views_has_the_batch_boundary(views: TrackerProcess) -> None:
    assert views.result("/views") == {"clicks": {"to": 10}}


def test_streaming_runs_are_listed_while_they_run(views: TrackerProcess) -> None:
    folder = Path(os.environ["HERONRY_HOME"]) / "pipeline" / "runs"
    about = {"file": "/p.py", "master": "local[2]", "checkpoint": "/c", "output": "/o", "every_seconds": 1.0}
    with claimed("words", folder, **about) as claim:
        claim.tell(state="waiting", micro_batch=2, rows=10, batch_seconds=2.0)
        (found,) = views.result("/pipeline/runs")
        assert (found["name"], found["micro_batch"], found["input_rate"]) == ("words", 2, 5.0)
    assert views.result("/pipeline/runs") == []


def test_view_merges_both_layers(views: TrackerProcess) -> None:
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
def test_key_is_json_or_plain_text(views: TrackerProcess, key: str, totals: list[int]) -> None:
    assert [each["value"] for each in views.result("/views/clicks", key=key)["totals"]] == totals


def test_range_of_buckets(views: TrackerProcess) -> None:
    assert [b["owner"] for b in views.result("/views/clicks", key="a", **{"from": 10})["buckets"]] == ["online"]
    assert [b["owner"] for b in views.result("/views/clicks", key="a", to=10)["buckets"]] == ["batch"]


def test_pages_of_keys_cover_all_keys_once(views: TrackerProcess) -> None:
    found, cursor = [], None
    while True:
        answer = views.result("/views/clicks/keys", limit=1, **({"cursor": cursor} if cursor else {}))
        assert answer["at_most"] >= len(answer["totals"])
        found += [(each["key"], each["value"]) for each in answer["totals"]]
        cursor = answer["next"]
        if cursor is None:
            break
    whole = views.result("/views/clicks")["totals"]
    assert found == [(each["key"], each["value"]) for each in whole]
    assert (answer["to"], answer["reducer"]) == (10, "count")
    texts = views.result("/views/clicks/keys", first="1", last="a", **{"from": 10})
    assert [(each["key"], each["value"]) for each in texts["totals"]] == [("1", 4), ("a", 3)]


def test_top_keys_of_a_view(views: TrackerProcess) -> None:
    def keys(**asked: Any) -> list[Any]:
        return [each["key"] for each in views.result("/views/clicks/top", **asked)["totals"]]

    assert keys(n=2) == ["a", ["x", 2]]
    assert keys(n=2, smallest="true") == ["1", 1]
    assert keys(n=1, to=10) == [["x", 2]]
    assert keys(first="a") == ["a"]


def test_series_of_a_key(views: TrackerProcess) -> None:
    answer = views.result("/views/clicks/series", key="a", limit=1)
    assert [(b["start"], b["value"], b["owner"]) for b in answer["buckets"]] == [(0, 5, "batch")]
    answer = views.result("/views/clicks/series", key="a", limit=1, **{"from": answer["next"]})
    assert [(b["start"], b["value"], b["owner"]) for b in answer["buckets"]] == [(10, 3, "online")]
    assert answer["next"] is None
    assert views.result("/views/clicks/series", key='["x", 2]')["buckets"][0]["value"] == 7
    assert views.result("/views/clicks/series", key="1")["buckets"][0]["value"] == 6
    assert views.result("/views/clicks/series", key="nobody")["buckets"] == []


@pytest.mark.parametrize(
    ("path", "asked", "why"),
    [
        ("", {"key": '{"a": 1}'}, "key"),
        ("", {"from": 5, "to": 1}, "to: is before from"),
        ("", {"from": "x"}, "from"),
        ("", {"limit": 0}, "limit"),
        ("keys", {"limit": 10_001}, "limit"),
        ("keys", {"cursor": "x"}, "cursor"),
        ("keys", {"first": "b", "last": "a"}, "last: is before first"),
        ("keys", {"from": 5, "to": 1}, "to: is before from"),
        ("keys", {"form": 5}, "form: is not a parameter of this path; did you mean 'from'?"),
        ("top", {"n": 0}, "n"),
        ("top", {"n": 1.5}, "n"),
        ("top", {"smallest": "perhaps"}, "smallest"),
        ("top", {"limit": 5}, "limit: is not a parameter"),
        ("series", {}, "key"),
        ("series", {"key": '{"a": 1}'}, "key"),
        ("series", {"key": "a", "limit": -1}, "limit"),
        ("series", {"key": "a", "from": "yesterday"}, "from"),
    ],
)
def test_invalid_view_parameters_are_explained(
    views: TrackerProcess, path: str, asked: dict[str, Any], why: str
) -> None:
    code, answer = views.get(f"/views/clicks/{path}".rstrip("/"), **asked)
    assert (code, answer["message"].startswith(why)) == (422, True), answer


def test_missing_view_is_404(views: TrackerProcess) -> None:
    for name in ("nothing", "gone", "..%2fclicks"):
        for path in ("", "/keys", "/top", "/series?key=a"):
            assert views.raw(f"/views/{name}{path}")[0] == 404, (name, path)
