"""``heron submit spark`` from the command line: results, rejections, failing records, a killed command."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from tests.support.servers.spark import ROOT, run_heron
from tests.support.waiting import wait_until

TEXT = ROOT / "examples" / "data" / "northanger_abbey.txt"

WORDS = """
import sys
from pathlib import Path
from heronry.streamlet import Builder, files, to_files

def note(word):
    if word == "catherine":
        with Path(sys.argv[1], word).open("ab") as file:
            file.write(b".")

words = Builder("words")
lower = words.source(files({text!r}, "text")).flat_map(str.split).map(str.lower)
lower.key_by().count_by_key(name="count").sink(to_files("/nowhere"), name="counts")
lower.map(len).key_by().count_by_key(name="lengths").sink(to_files("/nowhere", "parquet"), name="by_length")
words.source(files({text!r}, "text"), name="again").flat_map(str.split).map(str.lower).tap(note, name="note")
"""
FAILING = """
from heronry.streamlet import Builder, files, to_files

def ratio(record):
    return record["a"] / record["b"]

ratios = Builder("ratios")
ratios.source(files({folder!r}, "json"), name="lines").map(ratio, name="divide").sink(to_files("/nowhere"), name="out")
"""
REFUSED = """
import threading
from heronry.streamlet import Builder, collect, sequence
from heronry import Spout, Topology

LOCK = threading.Lock()
endless = Builder("endless")
endless.source(sequence(), name="numbers").sink(collect())

class Locked:
    def __init__(self):
        self.lock = LOCK
    def __call__(self, number):
        return number

locked = Builder("locked")
locked.source(sequence(5)).map(Locked(), name="careful").sink(collect())

class Numbers(Spout):
    outputs = ["n"]
    def next_tuple(self):
        pass

class Old(Topology):
    numbers = Numbers.spec()
"""
SLOW = """
import time
from heronry.streamlet import Builder, sequence, to_files

def late(number):
    time.sleep({seconds})
    return {{"n": number}}

slow = Builder("slow")
slow.source(sequence(64)).map(late, name="late").sink(to_files("/nowhere"), name="out")
"""


def write(place: Path, name: str, template: str, **values: Any) -> Path:
    file = place / f"{name}.py"
    file.write_text(template.format(**values) if values else template)
    return file


def records(folder: Path) -> list[Any]:
    return [json.loads(line) for part in sorted(folder.glob("*.json")) for line in part.read_text().splitlines()]


def test_word_count_of_a_real_text(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    file = write(tmp_path, "word_program", WORDS, text=str(TEXT))
    out = tmp_path / "out"
    with (tmp_path / "stderr").open("wb") as stderr:
        done = run_heron(
            tmp_path / "home", "submit", "spark", str(file), "words", "--output-path", str(out), "--", str(tmp_path),
            stderr=stderr,
        )  # fmt: skip
    said = (tmp_path / "stderr").read_text()
    assert done.returncode == 0, said
    assert b"wrote counts, by_length" in done.stdout
    assert "tasks" in said
    assert "rows" in said
    words = [word.lower() for line in TEXT.read_text().splitlines() for word in line.split()]
    assert {r["key"]: r["value"] for r in records(out / "counts")} == Counter(words)
    lengths = {r["key"]: r["value"] for r in pq.read_table(out / "by_length").to_pylist()}
    assert lengths == Counter(map(len, words))
    manifest = json.loads((out / "_heronry.json").read_text())
    assert manifest["outputs"] == ["counts", "by_length"]
    times = (tmp_path / "catherine").stat().st_size
    assert times == words.count("catherine"), "a stream that ends in a tap runs, and no function sees a record twice"
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".out")] == []
    again = run_heron(tmp_path / "home", "submit", "spark", str(file), "words", "--output-path", str(out))
    assert again.returncode == 4
    assert b"--replace" in again.stderr


def test_failing_record_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "good.json").write_text('{"a": 1, "b": 2}\n' * 50)
    (folder / "b ad.json").write_text('{"a": 1, "b": 2}\n{"a": 7, "b": 0}\n')
    file = write(tmp_path, "failing_program", FAILING, folder=str(folder))
    done = run_heron(
        tmp_path / "home", "submit", "spark", str(file), "--output-path", str(tmp_path / "out"),
        "--config-property", "user.streamlet.on.error=fail",
    )  # fmt: skip
    said = done.stderr.decode()
    assert done.returncode == 1, said
    assert "step 'divide' failed on the record {'a': 7, 'b': 0}" in said
    assert f"(input file {folder / 'b ad.json'})" in said
    assert "ZeroDivisionError: division by zero" in said
    assert 'return record["a"] / record["b"]' in said
    assert "py4j" not in said
    assert not (tmp_path / "out").exists()
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".out")] == []


def refusals(tmp_path: Path) -> dict[str, tuple[tuple[str, ...], int, str]]:
    words = str(write(tmp_path, "word_program", WORDS, text=str(TEXT)))
    refused, out = str(write(tmp_path, "refused_program", REFUSED)), ("--output-path", str(tmp_path / "out"))
    return {
        "an endless source": ((refused, "endless", *out), 7, "'numbers'"),
        "a lock in a function": ((refused, "locked", *out), 7, "'careful'"),
        "spouts and bolts": ((refused, "Old", *out), 7, "only run online"),
        "a file at the output": (
            (words, "words", "--output-path", words),
            4,
            "word_program.py is not empty",
        ),
        "a folder of others": (
            (words, "words", "--output-path", str(tmp_path), "--replace"),
            4,
            "not a result of a program",
        ),
        "a path or a step": ((words, "words", *out, "--input-path", "date=1"), 2, "begin with ./"),
        "no such program": ((refused, "nothing", *out), 3, "nothing"),
        "no such file": ((str(tmp_path / "absent.py"), "x", *out), 3, "absent.py"),
        "no output": ((words, "words"), 2, "--output-path"),
        "no master there": ((words, "words", *out, "--master", "spark://127.0.0.1:9"), 6, "spark://127.0.0.1:9"),
        "no master at all": ((words, "words", *out, "--master", "moon"), 2, "moon"),
        "an odd instant": ((words, "words", *out, "--to", "tomorrow"), 2, "tomorrow"),
        "no event time": ((words, "words", *out, "--to", "5"), 7, "event_time"),
        "two meanings": ((words, "words", *out, "--input-path", "nothing=x"), 2, "nothing"),
        "a file that exits": ((str(write(tmp_path, "exiting_program", "raise SystemExit(0)")), *out), 7, "sys.exit"),
        "a file that raises": ((str(write(tmp_path, "raising_program", "1 / 0")), *out), 7, "ZeroDivisionError"),
        "one of two sources": ((words, "words", *out, "--input-path", "/x"), 2, "STEP=URL"),
    }


def test_invalid_programs_are_rejected_before_spark_starts(tmp_path: Path) -> None:
    cases = refusals(tmp_path)
    with ThreadPoolExecutor(3) as pool:  # each is a separate process
        run = functools.partial(run_heron, tmp_path / "home", "submit", "spark")
        ended = list(pool.map(lambda case: run(*case[0]), cases.values()))
    for (what, (_, code, part)), done in zip(cases.items(), ended, strict=True):
        said = done.stderr.decode()
        assert (done.returncode, part in said) == (code, True), f"{what}: {done.returncode} {said}"
        assert "Traceback" not in said or "raises" in what
        assert "starting Spark" not in said
    other = run_heron(tmp_path / "home", "submit", "local", "x.py", "--master", "local[2]")
    assert other.returncode == 2


def test_missing_input_is_reported(tmp_path: Path) -> None:
    file = write(tmp_path, "word_program", WORDS, text=str(TEXT))
    done = run_heron(
        tmp_path / "home", "submit", "spark", str(file), "words", "--input-path", f"source={tmp_path / 'no' / 'where'}",
        "--output-path", str(tmp_path / "out"),
    )  # fmt: skip
    assert done.returncode == 3
    assert b"nothing to read" in done.stderr


def test_killed_command_leaves_no_process_and_no_partial_result(tmp_path: Path) -> None:
    file = write(tmp_path, "slow_program", SLOW, seconds=5)
    out = tmp_path / "out"
    command = [
        sys.executable, "-m", "heron_cli", "submit", "spark", str(file), "--output-path", str(out),
        "--master", "local[2]",
    ]  # fmt: skip
    environment = {**os.environ, "HERONRY_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    with (tmp_path / "stderr").open("wb") as stderr:
        heron = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        wait_until(lambda: "tasks" in (tmp_path / "stderr").read_text(), "tasks run", 600)
        family = psutil.Process(heron.pid).children(recursive=True)
        assert any("java" in process.name() for process in family)
        leftovers = [entry for entry in tmp_path.iterdir() if entry.name.startswith(".out.")]
        assert len(leftovers) == 1
    finally:
        heron.send_signal(signal.SIGKILL)
        heron.wait()
    wait_until(
        lambda: not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE], "all have gone"
    )
    assert not out.exists()
    write(tmp_path, "slow_program", SLOW, seconds=0)
    done = run_heron(tmp_path / "home", "submit", "spark", str(file), "--output-path", str(out))
    assert done.returncode == 0, done.stderr.decode()
    assert sorted(record["n"] for record in records(out / "out")) == list(range(64))
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".out")] == []
