"""Sinks that write one file per checkpoint and task: visibility, formats, and a full disk."""

from __future__ import annotations

import csv
import json
import math
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronry.connect.files import CsvSink, JsonLinesSink
from heronry.connect.settings import BadConfig, ConnectError
from tests.support.connectors import TaskPlace, checkpoint, made, row


def seen(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


@pytest.mark.parametrize("kind", [JsonLinesSink, CsvSink])
def test_checkpoint_is_visible_once_committed_and_commit_is_idempotent(kind: Any, tmp_path: Path) -> None:
    sink = made(kind(), {"user.sink.folder": str(tmp_path)})
    assert sink.prepare(checkpoint(1)) is None, "nothing was written"
    sink.process(row(word="a", count=1))
    token = sink.prepare(checkpoint(2))
    sink.process(row(word="b", count=2))
    later = sink.prepare(checkpoint(3))
    assert (seen(tmp_path), sorted(sink.prepared())) == ([], [token, later])
    sink.commit(2, token)
    sink.commit(2, token)
    sink.abort(token)
    sink.commit(2, token)
    assert seen(tmp_path) == [f"Topology.sink-{token}{kind.suffix}"]
    sink.abort(later)
    sink.abort(later)
    assert sink.prepared() == []
    sink.close()


def test_another_task_commits_prepared_files_and_open_files_are_removed(tmp_path: Path) -> None:
    config = {"user.sink.folder": str(tmp_path)}
    dead = made(JsonLinesSink(), config, TaskPlace(task=2))
    dead.process(row(n=1))
    token = dead.prepare(checkpoint(1, task=2))
    dead.process(row(n=2))  # and dies
    other = made(JsonLinesSink(), config, TaskPlace(task=1))
    assert len(list(tmp_path.glob(".*-open-*"))) == 1, "it may live: it is a task of the component"
    other.commit(1, token)
    assert [json.loads(line) for f in tmp_path.glob("*.jsonl") for line in f.read_text().splitlines()] == [{"n": 1}]
    made(JsonLinesSink(), config, TaskPlace(task=2))
    assert list(tmp_path.glob(".*-open-*")) == []
    dead.close()


def test_files_of_other_sinks_in_the_folder_are_untouched(tmp_path: Path) -> None:
    config = {"user.sink.folder": str(tmp_path)}
    names = [("T", "a.b"), ("T.a", "b"), ("T", "a"), ("T", "a-1")]
    sinks = [made(JsonLinesSink(), config, TaskPlace(component, topology=topology)) for topology, component in names]
    for number, sink in enumerate(sinks, 1):
        sink.process(row(n=number))
        assert sink.prepare(checkpoint(number)) == f"1-{number}-1-abc"
    assert [sink.prepared() for sink in sinks] == [[f"1-{n}-1-abc"] for n in range(1, 5)]


def test_missing_prepared_file_is_reported(tmp_path: Path) -> None:
    sink = made(CsvSink(), {"user.sink.folder": str(tmp_path)})
    with pytest.raises(ConnectError, match=r"1-7-1-abc.csv was prepared for checkpoint 7, is missing"):
        sink.commit(7, "1-7-1-abc")


# Events for a task's output: a checkpoint with or without data, a commit that dies before or after the file is
# visible, readers that remove all files, and a new process.
STEPS = st.lists(st.sampled_from(["write", "nothing", "marked", "seen", "taken", "restart"]), max_size=12)


@given(STEPS)
def test_repeated_commit_is_idempotent_after_files_were_removed(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, tokens = Path(name), list[str]()
        config, read = {"user.sink.folder": name}, list[int]()
        sink = made(JsonLinesSink(), config)

        def take_away() -> None:
            for file in sorted(folder.glob("Topology.sink-*"), key=lambda file: int(file.name.split("-")[2])):
                read.extend(json.loads(line)["n"] for line in file.read_text().splitlines())
                file.unlink()

        for number, step in enumerate(steps, 1):
            if step == "taken":
                take_away()
            elif step == "restart":
                sink = made(JsonLinesSink(), config)
            elif step != "nothing":
                sink.process(row(n=number))
                tokens.append(sink.prepare(checkpoint(number)))
                if step == "marked":
                    sink._marks.leave(tokens[-1])
                    sink = made(JsonLinesSink(), config)
                sink.commit(number, tokens[-1])
                if step == "seen":
                    take_away()
            other = made(JsonLinesSink(), config, TaskPlace(task=2))  # a restore by a task that commits for others
            for token in tokens:
                other.commit(number, token)
        take_away()
        assert read == [int(token.split("-")[1]) for token in tokens], "each once"
        assert len(list(folder.iterdir())) == min(1, len(tokens)), "a mark is left, and nothing else"


def test_marks_belong_to_one_task_and_one_life(tmp_path: Path) -> None:
    config = {"user.sink.folder": str(tmp_path)}
    sink = made(JsonLinesSink(), config)
    sink.process(row(n=1))
    sink.commit(9, sink.prepare(checkpoint(9)))
    for file in tmp_path.glob("Topology.sink-*"):
        file.unlink()
    sink.commit(9, "1-9-1-abc")
    sink.commit(8, "1-8-1-abc")
    for token in ("1-10-1-abc", "1-9-2-abc"):
        with pytest.raises(ConnectError, match="was never committed"):
            sink.commit(9, token)
    namesake = made(JsonLinesSink(), config, TaskPlace(life=2))
    namesake.commit(9, "1-9-1-abc")  # it resumes from a checkpoint of the other topology
    with pytest.raises(ConnectError, match="was never committed"):
        namesake.commit(8, "1-8-1-abc")


_CELLS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), st.integers(), st.floats(),
    st.booleans(),
)  # fmt: skip


@given(st.lists(st.tuples(_CELLS, _CELLS), min_size=1))
def test_csv_is_read_back_by_a_standard_reader(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("csv")
    sink = made(CsvSink(), {"user.sink.folder": str(folder)})
    for a, b in rows:
        sink.process(row(a=a, **{"b, or so": b}))
    sink.commit(1, sink.prepare(checkpoint(1)))
    (file,) = folder.glob("*.csv")
    with file.open(newline="", encoding="utf-8") as lines:
        header, *read = csv.reader(lines)
    assert header == ["a", "b, or so"]
    text = {bool: lambda value: str(value).lower(), float: repr}
    assert read == [[text.get(type(value), str)(value) for value in pair] for pair in rows]


def test_csv_distinguishes_none_from_empty_text_and_each_file_has_a_header(tmp_path: Path) -> None:
    sink = made(CsvSink(), {"user.sink.folder": str(tmp_path)})
    for number in (1, 2):
        sink.process(row(a=None, b=""))
        sink.commit(number, sink.prepare(checkpoint(number)))
    assert [f.read_bytes() for f in tmp_path.glob("*.csv")] == [b'a,b\r\n,""\r\n'] * 2
    sink.process(row(a=1, b=2))
    with pytest.raises(ConnectError, match="has the fields a, c, and the file's header has a, b: use a separate sink"):
        sink.process(row(a=1, c=2))
    sink.close()


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (CsvSink, [1], "CSV holds str, int, float, bool and None"),
        (CsvSink, "\ud800", "UTF-8 cannot encode"),
        (JsonLinesSink, math.nan, "JSON has finite numbers only"),
        (JsonLinesSink, {"a": [b"x"]}, "JSON has no bytes"),
        (JsonLinesSink, {1: 2}, "str keys only"),
        (JsonLinesSink, 2**64, "at most 64 bits"),
    ],
)
def test_value_that_a_format_cannot_hold_is_named(kind: Any, value: Any, why: str, tmp_path: Path) -> None:
    sink = made(kind(), {"user.sink.folder": str(tmp_path)})
    sink.process(row(good=1, field="fits"))
    with pytest.raises(ConnectError, match=rf"{kind.__name__}: field 'field' is .*{why}.*: change it in a bolt"):
        sink.process(row(good=1, field=value))
    sink.close()


@contextmanager
def room_of(size_bytes: int) -> Iterator[None]:
    """Limit the size of files of this process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disk_prepares_nothing_and_loses_nothing(tmp_path: Path) -> None:
    sink = made(JsonLinesSink(), {"user.sink.folder": str(tmp_path)})
    sink.process(row(text="x" * 100_000))
    with (
        room_of(1000),
        pytest.raises(ConnectError, match=r"cannot write into .* make room there; the topology continues"),
    ):
        sink.prepare(checkpoint(1))
    with pytest.raises(ConnectError, match="cannot write"):
        sink.prepare(checkpoint(2))  # the state on disk is unknown
    assert (sink.prepared(), seen(tmp_path)) == ([], [])
    sink.close()
    again = made(JsonLinesSink(), {"user.sink.folder": str(tmp_path)})  # as after a restore
    again.process(row(text="x" * 100_000))
    again.commit(3, again.prepare(checkpoint(3)))
    assert len(seen(tmp_path)) == 1


def test_invalid_folder_is_named_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadConfig, match=r"CsvSink needs config 'user.sink.folder': the folder it writes into"):
        made(CsvSink(), {})
    with pytest.raises(ConnectError, match=r"cannot write into .*file/below .*or name another in config 'user.sink.fo"):
        made(CsvSink(), {"user.sink.folder": str(tmp_path / "file" / "below")})
