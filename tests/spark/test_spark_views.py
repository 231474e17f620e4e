"""Reconciliation: an online topology whose tasks are killed, a batch over its archive, and one merged answer."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from heronry.pipeline import View, read_view
from heronry.streamlet.results import finished
from tests.support.servers.spark import ROOT, run_heron
from tests.support.waiting import wait_until

RECORDS, RATE, BUCKET = 16_000, 400, 100
LAG = 4_000  # records between the tuples in flight at a fault and T
PROGRAM = """
import sys
from pathlib import Path
from heronry.streamlet import Builder, archive, sequence, to_files, view

out = Path(sys.argv[1])

def record(number):
    return {{"time": number, "key": f"k{{number % 7}}", "value": number % 100}}

counted = Builder("counted")
source = counted.source(sequence({records}, record, rate={rate}), event_time="time", name="numbers")
source.sink(archive(out / "archive"), name="archive")
sums = source.key_by("key").sum_by_key("value", name="sums", updates=False, parallelism=2)
sums.sink(view("sums", out / "view", bucket={bucket}), name="view")
sums.sink(to_files(out / "online"), name="output")
"""


def truth(first: int = 0) -> Counter[str]:
    counts: Counter[str] = Counter()
    for number in range(first, RECORDS):
        counts[f"k{number % 7}"] += number % 100
    return counts


def heron(home: Path, *arguments: str) -> str:
    done = run_heron(home, *arguments)
    assert done.returncode == 0, f"heron {' '.join(arguments)}: {done.stderr.decode()}"
    return done.stdout.decode()


def instances(home: Path) -> list[dict[str, Any]]:
    found = json.loads(heron(home, "status", "local", "counted", "-o", "json"))["processes"]
    return [process for process in found if process["kind"] == "heron_instance"]


def newest(out: Path) -> int:
    """Return the start of the newest bucket of the online layer, in seconds."""
    buckets = [int(entry.name) for entry in (out / "view" / "online").glob("*") if entry.name.isdecimal()]
    return max(buckets, default=0) // 1000


def kill_instances(home: Path, out: Path) -> None:
    """Kill every task once with kill -9, each after the previous one has recovered."""
    for name in sorted(process["name"] for process in instances(home)):
        (process,) = [p for p in instances(home) if p["name"] == name]
        os.kill(process["pid"], signal.SIGKILL)
        pid = process["pid"]
        wait_until(
            lambda name=name, pid=pid: [
                p for p in instances(home) if p["name"] == name and p["state"] == "running" and p["pid"] != pid
            ],
            f"{name} is back",
        )


@contextmanager
def tracker(home: Path) -> Iterator[str]:
    """Yield the address of a tracker for this home."""
    environment = {**os.environ, "HERONRY_HOME": str(home), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "heron_cli", "tracker", "--port", "0"]
    log = (home / "tracker.log").open("w+")
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:

        def address() -> str:
            said = (home / "tracker.log").read_text()
            found = [word.rstrip("/.") for word in said.split() if word.startswith("http://127.0.0.1:")]
            return found[0] if found else ""

        yield wait_until(address, "the tracker listens")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        log.close()


def ask(address: str, path: str) -> Any:
    with urllib.request.urlopen(address + path, timeout=30) as reply:
        return json.loads(reply.read())["result"]


def test_counts_are_exact_after_kill_9_once_the_batch_covers_the_faults(tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "out"
    file = tmp_path / "counted_program.py"
    file.write_text(PROGRAM.format(records=RECORDS, rate=RATE, bucket=BUCKET))
    heron(home, "submit", "local", str(file), "counted", "--", str(out))
    try:
        wait_until(lambda: newest(out) > 0, "the first bucket", 600)
        kill_instances(home, out)
        at_fault = newest(out)
        wait_until(lambda: newest(out) >= at_fault + LAG or finished(out / "online"), "the faults are past", 600)
        to_seconds = newest(out)
        wait_until(lambda: finished(out / "online"), "the topology comes to its end", 600)
    finally:
        heron(home, "kill", "local", "counted")
    assert to_seconds < RECORDS - BUCKET, "the run was over too early for T to lie behind the faults"
    online = read_view(out / "view")
    assert online.to_ms is None
    assert all(count >= truth()[key] for key, count in online.totals().items()), "the online layer lost records"

    to = dt.datetime.fromtimestamp(to_seconds, dt.UTC).isoformat()
    said = heron(home, "pipeline", "run", str(file), "counted", "--to", to, "--", str(out))
    assert "view sums: version 000001" in said
    view = read_view("sums", home=home)
    assert view.to_ms == to_seconds * 1000
    assert Counter(view.totals()) == truth()
    assert Counter(view.totals(from_ms=view.to_ms)) == truth(to_seconds)
    owners = {bucket.owner: bucket for bucket in view.buckets()}
    assert set(owners) == {"batch", "online"}
    assert view.batch is not None
    laid_out_by_key(view.batch.folder)
    served_by_the_tracker(home, view)
    corrected_by_the_next_batch(home, out)


def laid_out_by_key(version: Path) -> None:
    """Check that readers find keys by the footers, and that each file is sorted."""
    files = list(version.rglob("*.parquet"))
    assert files
    for file in files:
        keys = pq.read_table(file).column("key").to_pylist()
        assert keys == sorted(keys)
        footer = pq.read_metadata(file)
        assert all(footer.row_group(n).column(0).statistics.has_min_max for n in range(footer.num_row_groups))


def served_by_the_tracker(home: Path, view: View) -> None:
    with tracker(home) as address:
        assert ask(address, "/views") == {"sums": {"to": view.to_ms}}
        found = ask(address, "/views/sums")
        assert {each["key"]: each["value"] for each in found["totals"]} == truth()
        assert "each record counts once" in found["promise"]
        one = ask(address, f"/views/sums?key=k3&from={view.to_ms}")
        assert [each["key"] for each in one["totals"]] == ["k3"]
        assert {bucket["owner"] for bucket in one["buckets"]} == {"online"}
        pages = ask(address, "/views/sums/keys?limit=5"), ask(address, "/views/sums/keys?limit=5&first=k5")
        assert {each["key"]: each["value"] for answer in pages for each in answer["totals"]} == truth()
        (most,) = ask(address, "/views/sums/top?n=1")["totals"]
        assert most["value"] == max(truth().values())


def corrected_by_the_next_batch(home: Path, out: Path) -> None:
    """Corrupt the online layer after T, and check that only the next batch corrects the answer."""
    last = max((out / "view" / "online").glob("*"), key=lambda entry: int(entry.name))
    file = next(last.glob("*.msgpack"))
    body = msgspec.msgpack.decode(file.read_bytes())
    body["rows"][0][2] += 1_000
    file.write_bytes(msgspec.msgpack.encode(body))
    assert sum(read_view("sums", home=home).totals().values()) == sum(truth().values()) + 1_000
    end = dt.datetime.fromtimestamp(RECORDS + BUCKET, dt.UTC).isoformat()
    said = heron(home, "pipeline", "backfill", "sums", "--from", "last", "--to", end)
    assert "recomputed from" in said
    view = read_view("sums", home=home)
    assert Counter(view.totals()) == truth()
    assert {bucket.owner for bucket in view.buckets()} == {"batch"}
    state = json.loads(heron(home, "pipeline", "status", "sums", "-o", "json"))
    assert [batch["version"] for batch in state["batches"]] == [2, 1]
    part = state["batches"][0]["backfill"]
    assert (part["version"], part["to"]) == (1, state["batches"][0]["to"])
    assert state["batches"][1]["backfill"] is None
    assert "the rest from version 1" in heron(home, "pipeline", "status", "sums")
    (listed,) = json.loads(heron(home, "pipeline", "views", "-o", "json"))
    assert listed["view"] == "sums"
