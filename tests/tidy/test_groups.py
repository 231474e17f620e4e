"""Groups of tests: what needs Spark's libraries runs once in a run of all, and is known to need them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from unittest import mock

import pytest
import run_groups
import without_spark

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("tests/unit/", "tests/integration/", "tests/spark/")
#: How a file says it, or takes a helper that does and so skips whoever imports it.
SKIPS = (
    'importorskip("pyarrow"', 'importorskip("pyspark"', 'importorskip("duckdb"', "from lake_tables import",
    "from iceberg_tables import",
)  # fmt: skip


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The arguments of each pytest that a group starts; all of them pass."""
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(run_groups, "_pytest", lambda *arguments: not calls.append(arguments))  # type: ignore[func-returns-value]  # append gives None
    return calls


def test_files_that_skip_without_sparks_libraries_are_listed() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("test_*.py")]
    skipping = {str(path.relative_to(ROOT)) for path in files if any(word in path.read_text() for word in SKIPS)}
    assert {name for name in skipping if not name.startswith("tests/spark/")} == set(run_groups.NEED_PYARROW)


def test_the_fast_group_runs_them_apart_and_all_others_without_the_libraries(ran: list[tuple[str, ...]]) -> None:
    need = [file for file in run_groups.NEED_PYARROW if file.startswith("tests/unit/")]
    assert run_groups.GROUPS["fast"]()
    others, theirs = ran
    assert {"tests/unit", "tests/tidy", "tests.without_spark"} <= set(others)
    assert [word.removeprefix("--ignore=") for word in others if word.startswith("--ignore=")] == need
    assert list(theirs[: len(need)]) == need
    assert "tests.without_spark" not in theirs


@pytest.mark.parametrize("group", ["fast", "integration"])
def test_a_group_says_what_it_skips(
    group: str, ran: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_groups, "LIBRARIES", ("json", "pyorrow"))
    run_groups.GROUPS[group]()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("skipped: what needs pyorrow, in ")
    folder = {"fast": "tests/unit/"}.get(group, f"tests/{group}/")
    assert all((file in line) == file.startswith(folder) for file in run_groups.NEED_PYARROW)
    monkeypatch.setattr(run_groups, "LIBRARIES", ("json",))
    run_groups.GROUPS[group]()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("fails", [False, True])
def test_the_spark_group_runs_them_unless_their_own_groups_have(
    fails: bool, ran: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_groups, "_setup_fails", lambda *words: fails)
    run_groups.GROUPS["spark"]()
    run_groups.for_all()["spark"]()
    alone, in_all = (set(arguments) & set(run_groups.NEED_PYARROW) for arguments in ran)
    assert alone == set(run_groups.NEED_PYARROW)
    assert in_all == (alone if fails else set())
    assert all("tests/spark" in arguments for arguments in ran)


def test_what_is_hidden_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(without_spark, "LIBRARIES", ("wave",))
    importlib.import_module("wave")
    with mock.patch.dict(sys.modules):
        without_spark.pytest_configure()
        assert importlib.util.find_spec("wave") is None
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("wave")
