"""Sources with splits, without an engine, and validation of connectors at submission."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.state.task_state import SplitPositions
from heronry import Grouping, TopologyBuilder, TopologyError
from heronry.connect.files import CsvSink, FileLines
from heronry.connect.http import HttpSink
from heronry.connect.mqtt_source import OpenMessages
from heronry.connect.numbers import Sequence, ranges
from heronry.connect.postgres import RetryableError, Server, dsn_problems, fitting
from heronry.connect.postgres_sink import PostgresSink
from heronry.connect.postgres_source import splits_of
from heronry.connect.settings import ConnectError, choice, names, problems
from heronry.testing import Recorder
from tests.support.connectors import TaskPlace


def reading(spout: Any, config: dict[str, Any], positions: list[Any] | None = None) -> Recorder:
    """Start a spout that owns all its splits, as the runtime does."""
    recorder = Recorder.attach(spout)
    spout.keyed = SplitPositions(1, [1], spout.splits)
    spout.keyed.load(positions or [])
    spout.initialize(config, TaskPlace(source=("x",)))
    return recorder


@given(st.integers(0, 5000), st.integers(1, 40))
def test_ranges_cover_each_number_once(count: int, splits: int) -> None:
    found = ranges(count, splits)
    assert [n for first, end in found.values() for n in range(first, end)] == list(range(count))
    sizes = [end - first for first, end in found.values()]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


@given(st.integers(0, 2000), st.integers(1, 5), st.integers(0, 12))
def test_sequence_resumes_from_any_checkpoint_and_ends(count: int, splits: int, calls: int) -> None:
    config = {"user.sequence.count": count, "user.sequence.splits": splits}
    first = Sequence()
    recorder = reading(first, config)
    for _ in range(calls):
        first.next_tuple()
    second = Sequence()
    rest = reading(second, config, first.keyed.taken())
    for _ in range(count // 256 + splits + 1):
        second.next_tuple()
    assert sorted(recorder.values() + rest.values()) == [(n,) for n in range(count)]


def test_missing_folder_and_compressed_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match=r"reads .*/none, which is not a directory here: create it on every host"):
        reading(FileLines(), {"user.files.folder": str(tmp_path / "none")})
    (tmp_path / "a.txt.GZ").touch()
    with pytest.raises(ConnectError, match=r"a.txt.GZ is compressed, .* leave it out by config 'user.files.pattern'"):
        reading(FileLines(), {"user.files.folder": str(tmp_path)})
    reading(FileLines(), {"user.files.folder": str(tmp_path), "user.files.pattern": "*.txt"})


def test_pattern_with_folders_reads_the_files_in_them(tmp_path: Path) -> None:
    for name in ("a/x.log", "b/x.log", "b/.x.log", ".c/x.log", "x.log", "b/c/x.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")

    def lines(pattern: str) -> list[str]:
        spout = FileLines()
        recorder = reading(spout, {"user.files.folder": str(tmp_path), "user.files.pattern": pattern})
        for _ in range(5):
            spout.next_tuple()
        return sorted(line for (line,) in recorder.values())

    assert lines("*/*.log") == ["a/x.log", "b/x.log"]
    assert lines("**/*.log") == ["a/x.log", "b/c/x.log", "b/x.log", "x.log"]
    assert lines("*.log") == ["x.log"]


@pytest.mark.parametrize("pattern", ["/var/log/*", "../*.log"])
def test_pattern_that_leaves_the_folder_is_rejected(tmp_path: Path, pattern: str) -> None:
    config = {"user.files.folder": str(tmp_path), "user.files.pattern": pattern}
    (said,) = FileLines.config_problems(config)
    assert "a pattern of paths below the folder" in said


def test_missing_options_of_all_components_are_reported_at_submission() -> None:
    builder = TopologyBuilder("connectors")
    lines = builder.add_spout("lines", FileLines, 1)
    builder.add_bolt("table", PostgresSink, 1, {lines: Grouping.SHUFFLE}, config={
        "user.postgres.dsn": "postgresql://me:secret@host/db", "user.postgres.key": "id",
    })  # fmt: skip
    builder.add_bolt("post", HttpSink, 1, {lines: Grouping.SHUFFLE}, config={"user.http.attempts": 0})
    builder.add_bolt("csv", CsvSink, 1, {lines: Grouping.SHUFFLE}, config={"user.sink.folder": "/tmp/x"})
    with pytest.raises(TopologyError) as raised:
        builder.definition()
    said = str(raised.value)
    for part in (
        "'lines': FileLines needs config 'user.files.folder': folder of the files to read",
        "'table': PostgresSink needs config 'user.postgres.table': the table that rows go into, with or without its",
        "'table': PostgresSink config 'user.postgres.key' is 'id'; it is columns of a unique key",
        "'table': PostgresSink config 'user.postgres.dsn' holds a password, which a topology's definition shows",
        "'csv': CsvSink is a two-phase sink, and with ATMOST_ONCE nothing that it writes is ever committed; set topolo",
        "'post': HttpSink needs config 'user.http.url'",
        "'post': HttpSink config 'user.http.attempts' is 0; it is how often a batch is posted before",
    ):
        assert part in said
    assert "secret" not in said
    assert said.count("'csv'") == 1


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"b": ["x"]}, []),
        ({"a": "skip", "b": ("x", "y")}, []),
        (
            {"a": "x", "b": []},
            ["config 'a' is 'x'; it is what follows: fail or skip", "needs config 'b': what is read"],
        ),
        (
            {"a": ["skip"]},
            ["config 'a' is ['skip']; it is what follows: fail or skip", "needs config 'b': what is read"],
        ),
        ({"b": [1]}, ["config 'b' is [1]; it is what is read: a list of names"]),
    ],
)
def test_choice_and_required_names_are_validated(config: dict[str, Any], said: list[str]) -> None:
    options = (choice("a", "what follows", "fail", "skip"), names("b", "what is read", required=True))
    assert list(problems(options, config)) == said
    assert options[0].of({}) == "fail"


def test_password_in_an_address_is_rejected() -> None:
    def refused(dsn: str) -> bool:
        return any("password" in problem for problem in dsn_problems({"user.postgres.dsn": dsn}))

    holding = ("host=h password=x", "password = 'x' host=h", "postgresql://me:x@h/db", "postgres://h/db?password=x")
    assert [refused(dsn) for dsn in holding] == [True] * 4
    without = ("host=h user=u passfile=/run/passwords", "postgresql://me@h:5432/db", "postgresql://h:5432/a@b")
    assert [refused(dsn) for dsn in without] == [False] * 3


def test_values_that_postgresql_cannot_hold_are_rejected() -> None:
    assert fitting({"a": [1, None, 2.5, float("inf"), b"\x00\xff"]}) == {"a": [1, None, 2.5, "Infinity", "\\x00ff"]}
    for value, why in (
        ("a\0", "zero byte"),
        ("\ud800", "UTF-8"),
        ({1: 2}, "str keys"),
        (object(), "of type object"),
    ):
        with pytest.raises(ValueError, match=why):
            fitting(value)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("DiskFull", "has no disk space left while staging .*: free space"),
        ("LockNotAvailable", "did not get a lock in time while staging"),
        ("DeadlockDetected", "rolled the transaction back while staging"),
        ("QueryCanceled", "cancelled the statement while staging"),
        ("TooManyConnections", "has no connection left while staging"),
        ("AdminShutdown", "connection to .* was lost while staging"),
        ("OperationalError", "connection to .* was lost while staging"),
    ],
)
def test_postgresql_error_is_classified_and_retried(error: str, said: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    server = Server({"user.postgres.dsn": "host=h dbname=d"}, "test")
    kind = getattr(psycopg.errors, error, None) or getattr(psycopg, error)
    with pytest.raises(RetryableError, match=said), server.saying("staging"):
        raise kind("what the server said")


def test_new_broker_session_restarts_packet_numbers() -> None:
    messages, sent = OpenMessages(), list[int]()
    old = messages.packet_id(1)
    assert messages.add(old, ["old"])
    assert not messages.add(old, ["old"]), "sent again over a new connection"
    messages.begin_session()
    new = messages.packet_id(1)
    assert messages.add(new, ["new"])
    messages.acknowledge(old, sent.append)
    assert sent == [], "the broker would take it for the new message"
    assert messages.row(new) == ["new"]
    messages.acknowledge(new, sent.append)
    messages.acknowledge(new, sent.append)
    assert (sent, messages.row(new), messages.row(old)) == ([1], None, None)


def test_splits_are_ranges_of_a_table() -> None:
    assert splits_of([]) == {"all": (None, None)}
    assert splits_of(["5", "9"]) == {"to 5": (None, "5"), "to 9": ("5", "9"), "above 9": ("9", None)}
