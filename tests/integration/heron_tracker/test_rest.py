"""Every path of a real tracker process: Heron's response shapes, errors, deadlines, staleness, abuse."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from heron_runtime.model.plan import Generation, GenerationPhase, task_participant
from heron_runtime.state import open_store, paths
from heron_runtime.state.store import Set, StateStore
from heron_runtime.wire import message_codecs
from heron_runtime.wire.master import CheckpointStatus, CheckpointSummary
from tests.integration.heron_tracker.conftest import PLACE
from tests.support.stub_topology import StubTopology, word_count
from tests.support.tracker_process import TrackerProcess, tracker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.core
COUNT = "__execute-count/split/default"


def test_lists_of_clusters_and_topologies(rest: TrackerProcess) -> None:
    assert rest.result("/clusters") == ["local"]
    assert rest.result("/topologies") == {"local": {"ada": {"default": ["WordCount"]}}}
    assert rest.result("/topologies", role="bob") == {"local": {}}
    assert rest.result("/topologies", cluster="local", environ="production") == {"local": {}}
    state = rest.result("/topologies/states")["local"]["default"]["WordCount"]
    assert (state["status"], state["has_physical_plan"], state["role"]) == ("Running", True, "ada")
    assert rest.result("/machines") == {"local": {"default": {"WordCount": ["127.0.0.1"]}}}
    assert rest.get("/machines", topology="WordCount")[0] == 422


def test_plans_and_records(rest: TrackerProcess, played: StubTopology) -> None:
    info = rest.result("/topologies/info", **PLACE)
    for part, path in (
        ("logical_plan", "logicalplan"), ("physical_plan", "physicalplan"), ("packing_plan", "packingplan"),
        ("execution_state", "executionstate"), ("metadata", "metadata"), ("runtime_state", "runtimestate"),
        ("scheduler_location", "schedulerlocation"),
    ):  # fmt: skip
        assert rest.result(f"/topologies/{path}", **PLACE) == info[part]
    assert info["id"] == "WordCount-0001"
    assert set(info["logical_plan"]["spouts"]) == {"sentences", "stop_words"}
    assert info["logical_plan"]["stages"] == 5
    assert info["logical_plan"]["bolts"]["count"]["inputs"][0] == {
        "stream_name": "default", "component_name": "split", "grouping": "FIELDS(word)",
    }  # fmt: skip
    physical = info["physical_plan"]
    assert physical["stmgrs"]["stmgr-1"]["pid"] == 4001
    assert set(physical["instance_groups"]) == {"container_1", "container_2"}
    assert sorted(physical["bolts"]["count"]) == sorted(n for n in physical["instances"] if "_count_" in n)
    assert info["runtime_state"]["stmgrs"] == {f"stmgr-{n}": {"is_registered": True} for n in (1, 2)}
    instance = physical["instances"]["container_1_sentences_1"]
    assert "batch 399" in rest.result(instance["logfile"] + "&offset=-100&length=100")["data"]


def test_responses_with_and_without_envelope(rest: TrackerProcess) -> None:
    status, body = rest.get("/clusters")
    assert status == 200
    assert set(body) == {"status", "message", "version", "tracker_version", "executiontime", "result"}
    assert rest.get("/clusters", envelope="false") == (200, ["local"])
    status, body = rest.get("/topologies/info", **{**PLACE, "topology": "WordCound"})
    assert (status, body["status"], body["result"]) == (404, "failure", None)
    assert "did you mean 'WordCount'" in body["message"]
    status, bare = rest.get("/topologies/info", **{**PLACE, "cluster": "mars"}, envelope="false")
    assert status == 404
    assert str(bare).startswith("request failed: unknown cluster 'mars'")
    assert rest.get("/topologies/info", cluster="local")[0] == 422
    assert rest.get("/topologies/info", **PLACE, role="bob")[0] == 404
    assert rest.get("/nowhere")[1]["status"] == "failure"
    assert rest.raw("/topologies", method="POST")[0] == 405


def test_responses_contain_no_secrets(rest: TrackerProcess, played: StubTopology) -> None:
    for path in ("info", "config", "physicalplan", "logicalplan"):
        _, _, body = rest.raw(f"/topologies/{path}?{urlencode(PLACE)}")
        assert b"s3cr3t" not in body
        assert played.launch.secret().encode() not in body
    config = rest.result("/topologies/config", **PLACE)
    assert config["topology.environment"]["LANG"] == "C"


def test_metrics(rest: TrackerProcess) -> None:
    found = rest.result("/topologies/metrics", **PLACE, component="count", metricname=COUNT, interval=600)
    assert set(found["metrics"]) == {COUNT}
    assert len(found["metrics"][COUNT]) == 3
    everything = rest.result("/topologies/metrics", **PLACE, component="count", metricname="__execute-count")
    assert everything["interval"] == -1
    assert all(v > found["metrics"][COUNT][i] for i, v in everything["metrics"][COUNT].items())
    one = rest.result(
        "/topologies/metrics", **PLACE, component="sentences", instance="container_1_sentences_1",
        metricname="__complete-latency",
    )  # fmt: skip
    assert list(one["metrics"]["__complete-latency/default"]) == ["container_1_sentences_1"]
    latency = one["percentiles"]["__complete-latency/default"]["*"]
    assert latency["p50"] <= latency["p90"] <= latency["p99"]
    assert rest.get("/topologies/metrics", **PLACE, component="nobody")[0] == 404
    assert rest.get("/topologies/metrics", **PLACE, component="count", interval=-7)[0] == 422


def test_time_lines_and_queries_agree(rest: TrackerProcess) -> None:
    now = int(time.time())
    span = {"starttime": now - 900, "endtime": now - 120}
    line = rest.result("/topologies/metrics/timeline", **PLACE, component="count", metricname=COUNT, **span)
    by_instance = line["timeline"][COUNT]
    assert len(by_instance) == 3
    total = sum(v for points in by_instance.values() for v in points.values())
    old = rest.result("/topologies/metricstimeline", **PLACE, component="count", metricname=COUNT, **span)
    assert old["timeline"][COUNT] == {
        i: {m: str(v) for m, v in points.items()} for i, points in by_instance.items()
    }  # fmt: skip

    def query(text: str) -> list[dict[str, Any]]:
        answer = rest.result("/topologies/metrics/query", **PLACE, query=text, **span)
        assert rest.result("/topologies/metricsquery", **PLACE, query=text, **span) == answer
        lines: list[dict[str, Any]] = answer["timeline"]
        return lines

    (summed,) = query(f"SUM(TS(count, *, {COUNT}))")
    assert sum(summed["data"].values()) == total > 0
    assert {s["instance"] for s in query(f"TS(*, *, {COUNT})")} == set(by_instance)
    top = query(f"TOPK(1, TS(count,*,{COUNT}))")
    assert len(top) == 1
    assert sum(top[0]["data"].values()) == max(sum(p.values()) for p in by_instance.values())
    capacity = query("DIVIDE(MULTIPLY(TS(count,*,__execute-count/*), TS(count,*,__execute-latency/*)), 60000)")
    assert {(s["instance"], s["label"]) for s in capacity} == {(i, "split/default") for i in by_instance}
    status, body = rest.get("/topologies/metrics/query", **PLACE, query="SUM(", **span)
    assert (status, body["message"].startswith("query: ")) == (422, True)
    assert rest.get("/topologies/metrics/query", **PLACE, query="TS(no,*,x)", **span)[0] == 404
    backwards = {"starttime": 9, "endtime": 3}
    assert rest.get("/topologies/metrics/query", **PLACE, query="SUM(1,TS(count,*,x))", **backwards)[0] == 422


def test_expensive_query_is_refused_without_delaying_others(rest: TrackerProcess) -> None:
    now = int(time.time())
    span = {"starttime": now - 86_400, "endtime": now}
    costly = f"SUM({','.join(['TS(*,*,*)'] * 190)})"
    with ThreadPoolExecutor(3) as askers:
        asked = [askers.submit(rest.get, "/topologies/metrics/query", **PLACE, query=costly, **span) for _ in range(3)]
        assert rest.raw("/healthz")[0] == 200
        for answer in asked:
            status, body = answer.result(60)
            assert (status, "shorter time" in body["message"]) == (422, True)
    huge = "AVG(1e308, 1e308, TOPK(1, DEFAULT(1e308, TS(count, *, nothing))))"
    (line,) = rest.result("/topologies/metrics/query", **PLACE, query=huge, starttime=now, endtime=now)["timeline"]
    assert set(line["data"].values()) == {1e308}


def test_exceptions(rest: TrackerProcess) -> None:
    found = rest.result("/topologies/exceptions", **PLACE, component="split")
    assert {e["instance_id"] for e in found} == {"container_2_split_4", "container_1_split_5"}
    assert found[0]["stacktrace"].startswith("Traceback")
    one = rest.result("/topologies/exceptions", **PLACE, component="split", instance="container_1_split_5")
    assert len(one) == 1
    (summary,) = rest.result("/topologies/exceptionsummary", **PLACE, component="*")
    assert summary["class_name"] == "ValueError"
    assert summary["count"] == sum(e["count"] for e in found)


def test_logs(rest: TrackerProcess, played: StubTopology) -> None:
    file = {**PLACE, "container": 1, "path": "container_1_split_5.log"}
    size = rest.result("/topologies/container/filedata", **file, offset=-1, length=-1)
    assert (size["length"], size["data"]) == (0, "")
    played.write("container_1_split_5", "caf\u00e9\n")
    more = rest.result("/topologies/containerfiledata", **file, offset=size["offset"], length=1000)
    assert more["data"] == "caf\u00e9\n"
    cut = rest.result("/topologies/container/filedata", **file, offset=size["offset"], length=4)
    assert (cut["data"], cut["length"]) == ("caf", 3)
    listed = rest.result("/topologies/container/filestats", **PLACE, container=1, path=".")
    assert listed["container_1_split_5.log"]["size"] == more["offset"] + more["length"]
    status, headers, body = rest.raw(f"/topologies/container/filedownload?{urlencode(file)}")
    assert (status, headers["content-type"]) == (200, "application/octet-stream")
    assert body == (played.launch.log_dir / "container_1_split_5.log").read_bytes()
    heron = rest.result("/topologies/container/filedata", **{**file, "path": "./log-files/container_1_split_5.log"},
                        offset=0, length=4)  # fmt: skip
    assert heron["data"] == "2026"
    assert rest.get("/topologies/container/filestats", **PLACE, container=77, path=".")[0] == 404
    assert rest.result("/topologies/pid", **PLACE, instance="container_1_split_5")["stdout"] == f"{4043 + 2}\n"
    assert rest.get("/topologies/pid", **PLACE, instance="container_9_split_5")[0] == 404
    assert rest.get("/topologies/jstack", **PLACE, instance="container_1_split_5")[0] == 404  # unknown to the stub


ESCAPES = (
    "../secret", "..", "../../secret", "/etc/passwd", "a/../../secret", "./../secret", "log-files/../secret",
    "..%2fsecret", "%2e%2e/secret", "%252e%252e%252fsecret", "..\\secret", "secret\x00.log", "link", "folder/link",
    "link/passwd", "hard", "....//secret", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "file:///etc/passwd",
    "~root/.bashrc", "$(id)", "a" * 1025, "pipe",
)  # fmt: skip


def test_no_path_leaves_the_log_folder(rest: TrackerProcess, played: StubTopology, folder: Path) -> None:
    outside = folder / "outside"
    outside.mkdir()
    (outside / "passwd").write_text(played.launch.secret())
    logs = played.launch.log_dir
    (logs / "folder").mkdir()
    (logs / "link").symlink_to(outside)
    (logs / "folder" / "link").symlink_to("../../secret")
    os.link(played.launch.secret_file, logs / "hard")
    os.mkfifo(logs / "pipe")
    for path in ESCAPES:
        for name in ("filedata", "filestats", "filedownload"):
            for text in (quote(path), quote(quote(path))):
                extra = "&offset=0&length=-1" if name == "filedata" else ""
                query = f"{urlencode(PLACE)}&container=1&path={text}{extra}"
                status, _, body = rest.raw(f"/topologies/container/{name}?{query}")
                assert status in (404, 422), (name, path, status, body)
                assert played.launch.secret().encode() not in body
    listed = rest.result("/topologies/container/filestats", **PLACE, container=1, path="")
    assert not {"link", "hard", "pipe"} & set(listed)
    for name in ("..%2findex.html", "%2e%2e%2f__main__.py", "....", "..\\app.py", "main.js%00", "lib", "lib/"):
        assert rest.raw(f"/static/{name}")[0] == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421), ({"Host": "127.0.0.1.evil.example:80"}, 421),
        ({"Host": "localhost@evil"}, 421),
        ({"Host": "localhost:8888"}, 200), ({"Host": "[::1]:8888"}, 200),
        ({"Host": "evil.example", "X-Forwarded-Host": "localhost"}, 421),
        ({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403), ({"Origin": "http://localhost:8888"}, 200),
        ({"Origin": "http://localhost.evil.example"}, 403),
    ],
)  # fmt: skip
def test_foreign_origins_and_host_names_are_refused(rest: TrackerProcess, headers: dict[str, str], status: int) -> None:
    for path in ("/topologies", "/", "/events", "/metrics"):
        if path == "/events" and status == 200:
            continue
        found, sent, _ = rest.raw(path, headers)
        assert found == status, path
        assert not [name for name in sent if name.startswith("access-control-")]


def test_every_response_has_security_headers(rest: TrackerProcess) -> None:
    for path in ("/", "/docs", "/static/main.js", "/topologies", "/nowhere", "/topologies/info"):
        _, headers, _ = rest.raw(path)
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers
    assert rest.raw("/topologies?callback=steal")[1]["content-type"] == "application/json"


def test_hostile_names_are_returned_as_data(rest: TrackerProcess, folder: Path) -> None:
    for name in ("<script>alert(1)</script>", "a\r\nSet-Cookie: x=1", "';DROP TABLE", "%00", "\u202e", "x" * 256):
        status, headers, body = rest.raw(f"/topologies/info?{urlencode({**PLACE, 'topology': name})}")
        assert status == 404
        assert headers["content-type"] == "application/json"
        assert "set-cookie" not in headers
        json.loads(body)
    assert rest.raw("/topologies?role=" + "x" * 20_000)[0] == 414
    for line in (folder / "tracker.log").read_text().splitlines():
        assert not line.startswith("Set-Cookie")


def test_health_metrics_and_schema_of_the_tracker(rest: TrackerProcess) -> None:
    assert rest.raw("/healthz")[2] == rest.raw("/health")[2] == b"ok"
    rest.result("/topologies")
    assert json.loads(rest.raw("/readyz")[2])["clusters"]["local"]["topologies"] >= 1
    targets = json.loads(rest.raw("/prometheus/targets")[2])
    assert {t["targets"][0] for t in targets} >= {"127.0.0.1:40000", "127.0.0.1:40001", "127.0.0.1:40002"}
    assert targets[0]["labels"]["role"] == "ada"
    text = rest.raw("/metrics")[2].decode()
    assert 'heron_tracker_requests_total{code="200",route="/topologies"}' in text
    for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds"):
        assert f"heron_tracker_process_{name} " in text
    assert "heron_tracker_event_loop_lag_seconds " in text
    schema = json.loads(rest.raw("/openapi.json")[2])
    assert "/topologies/metrics/query" in schema["paths"]
    assert rest.raw("/docs")[1]["content-type"].startswith("text/html")


def test_events_report_added_and_removed_topologies(rest: TrackerProcess, store: StateStore, folder: Path) -> None:
    lines: list[bytes] = []
    opened = threading.Event()

    def listen() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", rest.port, timeout=60)
        connection.request("GET", "/events?cluster=local")
        response = connection.getresponse()
        while b"removed" not in b"".join(lines):
            lines.append(response.readline())
            opened.set()
        connection.close()

    listener = threading.Thread(target=listen)
    listener.start()
    assert opened.wait(30)
    other = StubTopology(store, folder, word_count("Other"))
    wait_until(lambda: "Other" in rest.result("/topologies")["local"]["ada"]["default"])
    other.pause()
    wait_until(lambda: rest.result("/topologies/states")["local"]["default"]["Other"]["status"] == "Paused")
    first = rest.raw("/topologies?limit=1")
    assert json.loads(first[2])["result"] == {"local": {"ada": {"default": ["Other"]}}}
    assert first[1]["x-total-count"] == "2"
    rest_of = rest.result(first[1]["link"].split("<")[1].split(">")[0])
    assert rest_of == {"local": {"ada": {"default": ["WordCount"]}}}
    assert rest.get("/topologies", cursor="nonsense")[0] == 422
    other.kill()
    other.close()
    listener.join(60)
    told = [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]
    changes = [t["change"] for t in told if t.get("topology") == "Other"]
    assert (changes[0], changes[-1]) == ("added", "removed")


@pytest.fixture
def exact(rest: TrackerProcess, store: StateStore, folder: Path) -> Iterator[StubTopology]:
    """Yield a topology that keeps state."""
    made = word_count("Exact")
    config = {**made.config, "topology.reliability.mode": "EFFECTIVELY_ONCE"}
    topology = StubTopology(store, folder, replace(made, config=config))
    yield topology
    topology.kill()
    topology.close()
    shutil.rmtree(topology.launch.home)
    wait_until(lambda: "Exact" not in json.dumps(rest.result("/topologies")))


@pytest.mark.parametrize(
    ("phase", "word", "heron"),
    [("running", "running", "Running"), ("restoring", "restoring", "Restoring"), ("failed", "failing", "Failed")],
)
def test_phase_of_kept_state_is_shown_even_if_the_master_is_dead(
    rest: TrackerProcess, store: StateStore, exact: StubTopology, phase: str, word: str, heron: str
) -> None:
    place = {**PLACE, "topology": "Exact"}
    cause, missing = ("", ()) if phase == "running" else ("task 2: it raised", (task_participant(2),))
    last = CheckpointSummary(12, 1_000.0, 120.0, 14.0, 4096, 2)
    exact.tasks_state = CheckpointStatus(4, GenerationPhase(phase), cause, 11, missing, last=last, restores=1)
    node = store.get(paths.physical_plan("Exact"))
    assert node is not None
    generation = Generation(4, GenerationPhase(phase), 11, cause=cause)
    plan = replace(message_codecs.PHYSICAL_PLAN.decode(node.data), generation=generation)
    store.commit([Set(paths.physical_plan("Exact"), message_codecs.PHYSICAL_PLAN.encode(plan))])

    def state() -> Any:
        rows = rest.result("/api/v1/topologies")["topologies"]
        return {row["topology"]: row["state"] for row in rows}.get("Exact")

    wait_until(lambda: state() == word)
    wait_until(lambda: rest.result("/topologies/states")["local"]["default"]["Exact"]["status"] == heron)
    found = rest.result("/topologies/runtimestate", **place)["tasks_state"]
    assert (found["generation"], found["last"]["number"], found["last"]["bytes"], found["restores"]) == (4, 12, 4096, 1)
    assert cause in (found["trouble"] or "")
    assert (found["trouble"] is None) == (phase == "running")
    assert rest.result("/topologies/info", **place)["runtime_state"]["tasks_state"] == found
    page = rest.result("/api/v1/topology", **place)
    assert (page["state"], page["tasks_state"]["last"]["number"]) == (word, 12)
    exact.kill_master()
    wait_until(lambda: not rest.result("/api/v1/topology", **place)["tasks_state"]["told"])
    assert phase == "running" or state() == word, "what the plan in the store says is enough"


def test_tracker_with_a_token_answers_only_authenticated_requests(store: StateStore, folder: Path) -> None:
    secret, file = "0123456789abcdef", folder / "token"
    file.write_text(secret + "\n")
    file.chmod(0o400)
    shown = base64.b64encode(f"me:{secret}".encode()).decode()
    wrong = base64.b64encode(f"{secret}:me".encode()).decode()
    cluster = ("--cluster", f"local=files://{folder}/state", "--token-file", str(file))
    with tracker(*cluster, log=folder / "login.log") as rest:
        wait_until(lambda: rest.raw("/readyz")[0] == 200)
        for path in ("/topologies", "/", "/docs", "/openapi.json", "/static/main.js", "/events", "/nowhere"):
            for given in ("", f"Basic {wrong}", secret):
                status, headers, _ = rest.raw(path, {"Authorization": given} if given else {})
                assert (status, path) == (401, path)
                assert headers["www-authenticate"].startswith("Basic ")
                assert "content-security-policy" in headers
        for right in (f"Bearer {secret}", f"Basic {shown}", f"basic {shown}"):
            assert rest.raw("/topologies", {"Authorization": right})[0] == 200
        assert rest.raw("/topologies", {"Authorization": "Basic \xff"})[0] == 401
        statuses = {rest.raw("/topologies", {"Authorization": "Bearer x"})[0] for _ in range(60)}
        assert statuses == {401, 429}  # repeated failures are throttled
        assert rest.raw("/topologies", {"Authorization": f"Bearer {secret}"})[0] == 200
        new = folder / "new"
        new.write_text(f"sha256:{hashlib.sha256(b'another token of mine').hexdigest()}\n")
        new.chmod(0o400)
        new.replace(file)
        wait_until(lambda: rest.raw("/topologies", {"Authorization": "Bearer another token of mine"})[0] == 200)
        assert rest.raw("/topologies", {"Authorization": f"Bearer {secret}"})[0] in (401, 429)
        assert rest.raw("/healthz")[0] == 200


def test_dead_or_silent_master_delays_no_request_beyond_its_deadline(tmp_path: Path) -> None:
    with _opened(tmp_path) as store:
        played = StubTopology(store, tmp_path)
        played.report(minutes=2)
        with tracker("--cluster", f"local=files://{tmp_path}/state", log=tmp_path / "log") as rest:
            wait_until(lambda: rest.raw("/readyz")[0] == 200)
            assert rest.get("/topologies/metrics", **PLACE, component="count")[0] == 200
            calls = len(played.calls)
            together = [threading.Thread(target=rest.get, args=("/api/v1/topologies",)) for _ in range(8)]
            for thread in together:
                thread.start()
            for thread in together:
                thread.join()
            assert len(played.calls) - calls <= 8  # shared, not eight times two
            played.master_delay_seconds = 30
            time_out = _timed(rest, "/topologies/metrics", component="rank")
            assert time_out[0] == 503
            assert time_out[1] < 15
            row = rest.result("/api/v1/topologies")["topologies"][0]
            assert row["flow"] is None
            again = _timed(rest, "/topologies/metrics", component="store")
            assert again[0] == 503
            played.kill_master()
            assert rest.get("/topologies/runtimestate", **PLACE)[0] == 503
            assert rest.result("/topologies/info", **PLACE)["runtime_state"]["has_tmanager_location"] is True
        played.close()


def test_without_the_store_the_last_state_is_served_as_stale(tmp_path: Path) -> None:
    with _opened(tmp_path) as store:
        played = StubTopology(store, tmp_path)
        played.report(minutes=2)
        with tracker("--cluster", f"local=files://{tmp_path}/state", log=tmp_path / "log") as rest:
            wait_until(lambda: rest.raw("/readyz")[0] == 200)
            (tmp_path / "state").rename(tmp_path / "gone")
            (tmp_path / "state").write_text("a file where a folder should be")  # else a retry creates an empty store
            wait_until(lambda: json.loads(rest.raw("/readyz")[2])["clusters"]["local"]["stale"])
            status, headers, body = rest.raw(f"/topologies/info?{urlencode(PLACE)}")
            assert (status, headers["x-heronry-stale"]) == (200, "local")
            assert "last known state" in json.loads(body)["message"]
            assert rest.result("/api/v1/topologies")["topologies"][0]["stale"] is True
            assert rest.get("/topologies/metrics", **PLACE, component="count")[0] == 200  # the master is alive
        played.close()


def test_cluster_without_a_store_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    with tracker("--cluster", f"mars=files://{tmp_path}/state", log=tmp_path / "log") as rest:
        assert rest.raw("/readyz")[0] == 503
        assert rest.raw("/healthz")[0] == 200
        status, body = rest.get("/topologies")
        assert (status, body["status"]) == (503, "failure")


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[StateStore]:
    store = open_store(f"files://{folder}/state")
    store.open()
    yield store
    store.close()


def _timed(rest: TrackerProcess, path: str, **parameters: Any) -> tuple[int, float]:
    began = time.monotonic()
    status, _ = rest.get(path, **PLACE, **parameters)
    return status, time.monotonic() - began
