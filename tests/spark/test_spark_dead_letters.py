"""Dead letters of a Spark job equal those of the reference, and all other records are in the result."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from heronry.streamlet.reference import run
from heronry.streamlet.results import read
from tests.support.servers.spark import run_heron

DIRTY = """
from dataclasses import dataclass

from heronry.streamlet import Builder, files, to_files


@dataclass
class Number:
    n: int

def divide(record):
    return 20 // record["n"]

def odd(result):
    if result.key == 20:
        raise ValueError("odd")
    return result

def picky(context, record):
    if record["n"] == 5:
        raise ValueError("no fives")
    context.state = (context.state or 0) + 1
    context.emit([record["n"], context.state])

def program(folder, config):
    builder = Builder("dirty", config)
    source = builder.source(files(folder + "/in", "json", schema={{"n": "int"}}))
    divided = source.map(divide)
    divided.sink(to_files("/nowhere"), name="out")
    divided.key_by().count_by_key(name="counts").map(odd).sink(to_files("/nowhere"), name="counted")
    source.key_by("n").count_by_key(name="plain").sink(to_files("/nowhere"), name="plain-counts")
    source.key_by("n").process(picky, event_time="n").sink(to_files("/nowhere"), name="told")
    typed = builder.source(files(folder + "/in", "json"), name="raw").with_schema(Number, name="typed")
    typed.count_by_key("n", name="typed-counts").sink(to_files("/nowhere"), name="typed-counted")
    return builder

dirty = program({folder!r}, {config!r})
"""
LINES = ['{"n": 1}', "", "no json", '{"n": 0}', '{"n": 4}', '{"n": "text"}', '{"m": 1}', '{"n": 5}', '{"n": 1}']


def plain(value: Any) -> list[str]:
    return sorted(json.dumps(record, sort_keys=True) for record in value)


def told(letters: list[dict[str, Any]]) -> list[Any]:
    keys = ("step", "where", "record", "failed_on", "error")
    return sorted(json.dumps([letter[key] for key in keys]) for letter in letters)


def submitted(tmp_path: Path, **config: Any) -> tuple[int, str, Path]:
    (tmp_path / "in").mkdir(exist_ok=True)
    for number in range(3):
        body = "\n".join(LINES * (number + 1))
        (tmp_path / "in" / f"{number}.json").write_text(body)
        (tmp_path / "in" / f"{number}.json.gz").write_bytes(gzip.compress(body.encode()))
    file = tmp_path / "dirty_program.py"
    file.write_text(DIRTY.format(folder=str(tmp_path), config=config))
    out = tmp_path / "result"
    done = run_heron(tmp_path / "home", "submit", "spark", str(file), "--output-path", str(out), "--master", "local[2]")
    return done.returncode, (done.stdout + done.stderr).decode(), out


def test_job_writes_the_same_dead_letters_as_the_reference(tmp_path: Path) -> None:
    code, said, out = submitted(tmp_path)
    assert code == 0, said
    space: dict[str, Any] = {}
    exec(DIRTY.format(folder=str(tmp_path), config={}), space)  # the same program, in this process
    expected: list[dict[str, Any]] = []
    results = run(space["dirty"].build(), failed=expected)
    letters = [json.loads(line) for line in (out / "_failed.jsonl").read_text().splitlines()]
    assert told(letters) == told(expected)
    assert len(letters) == (5 + 3) * 12 + 1
    assert f"{tmp_path}/in/2.json.gz, line 21" in {letter["where"] for letter in letters}
    assert f"; 97 records that fail are put aside in {out}/_failed.jsonl" in said
    for sink, records in results.items():
        assert plain(read(out / sink)) == plain(records), sink


def test_more_dead_letters_than_the_limit_fail_the_job(tmp_path: Path) -> None:
    code, said, out = submitted(tmp_path, **{"user.streamlet.aside.most": 60})
    assert code == 1
    assert "more than 60 records fail; step '" in said
    assert not out.exists()
