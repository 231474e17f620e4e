"""Two trackers behind a load balancer give the same answers, and a page continues on the other one.

The test requests every path of the OpenAPI description. The clocks of the topology masters stand still, so that rates
do not differ between two requests. Data about the replica itself is left out: the time of a request, the last read of
the store, its own metrics.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from heron_runtime.state import open_store
from heron_tracker.application import make_app
from heron_tracker.tracker import Tracker
from tests.support.stub_topology import StubTopology, word_count
from tests.support.tracker_process import TrackerProcess, tracker
from tests.support.waiting import wait_until

OF_ITSELF = {"/metrics", "/events"}
SPECIFICATION = make_app(Tracker({})).openapi()
PATHS = sorted(path for path, methods in SPECIFICATION["paths"].items() if "get" in methods and path not in OF_ITSELF)
INSTANCE = "container_1_sentences_1"


def arguments(path: str, now: int) -> dict[str, Any]:
    """Return a value for every parameter of the path."""
    known = {
        "cluster": "local", "environ": "default", "topology": "WordCount", "role": "ada", "component": "count",
        "container": 1, "path": f"{INSTANCE}.log", "offset": 0, "length": 500, "starttime": now - 900, "endtime": now,
        "query": "TOPK(2, TS(count, *, __py-physical-memory-byte))", "interval": 600, "limit": 100,
        "instance": INSTANCE, "key": "a",
    }  # fmt: skip
    found = {p["name"] for p in SPECIFICATION["paths"][path]["get"].get("parameters", ())}
    if path.startswith(("/topologies/metrics", "/topologies/exceptions")) or path.endswith(("/metrics", "/exceptions")):
        known["component"] = "sentences"
    if path.endswith("filestats"):
        known["path"] = "."
    return {name: value for name, value in known.items() if name in found}


def without_itself(answer: Any) -> Any:
    """Return the answer without what a replica reports about itself."""
    if isinstance(answer, dict):
        return {k: without_itself(v) for k, v in answer.items() if k not in ("executiontime", "read_at")}
    return [without_itself(v) for v in answer] if isinstance(answer, list) else answer


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TrackerProcess, TrackerProcess]]:
    folder = tmp_path_factory.mktemp("replicas")
    now = time.time()
    with contextlib.ExitStack() as stack:
        store = open_store(f"files://{folder}/state")
        store.open()
        stack.callback(store.close)
        for name in ("WordCount", "Invoices", "Clicks"):
            played = StubTopology(store, folder, word_count(name))
            stack.callback(played.close)
            played.report(now)
            played.press("count")
            played.clock = lambda: now
        cluster = ("--cluster", f"local=files://{folder}/state")
        first = stack.enter_context(tracker(*cluster, log=folder / "first.log"))
        second = stack.enter_context(tracker(*cluster, log=folder / "second.log"))
        for replica in (first, second):
            wait_until(lambda replica=replica: replica.raw("/readyz")[0] == 200)  # type: ignore[misc]
        yield first, second


@pytest.mark.parametrize("path", PATHS)
def test_replicas_give_the_same_answer(path: str, replicas: tuple[TrackerProcess, TrackerProcess]) -> None:
    given = arguments(path, int(time.time()) - 60)
    asked = f"{path}?{urlencode(given, doseq=True)}" if given else path
    (one, one_headers, one_body), (other, other_headers, other_body) = (r.raw(asked) for r in replicas)
    assert one == other
    assert one != 422, one_body
    for header in ("content-type", "etag", "link", "x-total-count", "x-heronry-stale", "cache-control"):
        assert one_headers.get(header) == other_headers.get(header), header
    if "json" in one_headers["content-type"]:
        assert without_itself(json.loads(one_body)) == without_itself(json.loads(other_body))
    else:
        assert one_body == other_body


def test_most_paths_return_data(replicas: tuple[TrackerProcess, TrackerProcess]) -> None:
    """Two trackers that refuse every request would also agree."""
    now = int(time.time()) - 60
    refused = {
        path
        for path in PATHS
        if replicas[0].raw(f"{path}?{urlencode(arguments(path, now), doseq=True)}")[0] not in (200, 206)
    }
    # A stub container has no processes to inspect, and there is neither a merged view nor a history.
    history = {"/topologies/history/events", "/topologies/history/metrics"}
    views = {"/views/{name}", "/views/{name}/keys", "/views/{name}/series", "/views/{name}/top"}
    assert refused == {"/topologies/jstack", "/topologies/stacks", *views, *history}


def test_pagination_continues_on_the_other_replica(replicas: tuple[TrackerProcess, TrackerProcess]) -> None:
    found, cursor, turn = [], None, 0
    while True:
        more = {"cursor": cursor} if cursor else {}
        answer = replicas[turn % 2].result("/api/v1/topologies", limit=1, **more)
        found += [row["topology"] for row in answer["topologies"]]
        cursor, turn = answer["next"], turn + 1
        if cursor is None:
            break
    assert found == ["Clicks", "Invoices", "WordCount"]


def test_etag_of_one_replica_is_valid_on_the_other(replicas: tuple[TrackerProcess, TrackerProcess]) -> None:
    place = {"cluster": "local", "environ": "default", "topology": "WordCount"}
    path = f"/topologies/logicalplan?{urlencode(place)}"
    tag = replicas[0].raw(path)[1]["etag"]
    assert replicas[1].raw(path, {"If-None-Match": tag})[0] == 304
