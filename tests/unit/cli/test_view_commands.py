"""``heron pipeline keys``, ``top`` and ``series`` on a view whose batch part ends at 10 ms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install heronry[archive]")

from heron_cli.application import make_app
from heronry.pipeline.registry import Registered, register
from heronry.streamlet.monoid import count
from tests.support.view_files import write_batch, write_online

EVENTS = [("a", 1, 1), ("a", 2, 1), ("a", 11, 1), ("b", 3, 1), ("12", 12, 1), ("é", 13, 1), ("é", 14, 1)]


@pytest.fixture(autouse=True)
def view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERONRY_HOME", str(tmp_path / "home"))
    write_batch(tmp_path / "view", EVENTS, count(), 10)
    write_online(tmp_path / "view", EVENTS, count())
    register(Registered("words", str(tmp_path / "view")))


def heron(*arguments: str) -> Result:
    return CliRunner().invoke(make_app(), ["pipeline", *arguments])


def data(*arguments: str) -> Any:
    result = heron(*arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def totals(*arguments: str) -> list[tuple[Any, Any]]:
    return [(each["key"], each["value"]) for each in data(*arguments)["totals"]]


def test_keys_are_paged() -> None:
    one = data("keys", "words", "--limit", "3")
    assert [each["key"] for each in one["totals"]] == ["12", "a", "b"]
    assert one["at_most"] == 5  # rows
    assert totals("keys", "words", "--cursor", one["next"]) == [("é", 2)]
    assert totals("keys", "words", "--first", "a", "--last", "b", "--to", "0.01") == [("a", 2), ("b", 1)]
    shown = heron("keys", "words", "--limit", "1")
    assert shown.stdout.splitlines()[1].split() == ['"12"', "1"]
    assert f"more: --cursor {data('keys', 'words', '--limit', '1')['next']}" in shown.stderr


def test_top_returns_largest_and_smallest_totals() -> None:
    assert totals("top", "words", "-n", "2") == [("a", 3), ("é", 2)]
    assert totals("top", "words", "-n", "2", "--smallest") == [("12", 1), ("b", 1)]
    assert [line.split() for line in heron("top", "words", "-n", "1").stdout.splitlines()[1:]] == [["a", "3"]]


def test_unnamed_view_is_queried_by_its_folder(tmp_path: Path) -> None:
    write_online(tmp_path / "live", EVENTS, count())
    assert totals("top", str(tmp_path / "live"), "-n", "2") == [("a", 3), ("é", 2)]
    assert "the folder of a view" in heron("top", "live").output


def test_series_shows_a_key_over_time() -> None:
    found = data("series", "words", "a")
    assert [(each["value"], each["owner"]) for each in found["buckets"]] == [(2, "batch"), (1, "online")]
    assert (found["buckets"][1]["start"], found["next"]) == ("1970-01-01T00:00:00.010000Z", None)
    first = data("series", "words", "a", "--limit", "1")
    (second,) = data("series", "words", "a", "--from", first["next"])["buckets"]
    assert second == found["buckets"][1]
    assert len(data("series", "words", '"12"')["buckets"]) == 1
    assert data("series", "words", "12")["buckets"] == []
    assert "more: --from 1970-01-01T00:00:00.010000Z" in heron("series", "words", "a", "--limit", "1").stderr


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("keys", "words", "--limit", "0"), 2, "--limit"),
        (("keys", "words", "--cursor", "x"), 2, "cursor: not a cursor of a page of a view"),
        (("keys", "words", "--first", "b", "--last", "a"), 2, "last: is before first"),
        (("keys", "words", "--from", "yesterday"), 2, "invalid time"),
        (("keys", "nothing"), 3, "unknown view 'nothing' (known: words)"),
        (("top", "words", "-n", "10001"), 2, "-n"),
        (("series", "words", '{"a": 1}'), 2, "must be a scalar or a list"),
    ],
)
def test_invalid_view_query_is_rejected_with_its_reason(arguments: tuple[str, ...], code: int, why: str) -> None:
    result = heron(*arguments)
    assert (result.exit_code, why in result.output) == (code, True), result.output
