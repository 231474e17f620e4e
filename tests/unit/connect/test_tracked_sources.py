"""Provided sources in ATLEAST_ONCE: failed rows are emitted again, and a restart resumes after acked ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.state.task_state import SplitPositions
from heronry.api.config import Config
from heronry.connect import tracked
from heronry.connect.files import FileLines
from heronry.connect.numbers import Sequence
from heronry.connect.polling import PollingSource, Range, Reader
from heronry.connect.settings import ConnectError, seconds
from heronry.connect.tracked import PositionTracker
from heronry.testing import Recorder
from tests.support.connectors import TaskPlace

ROWS = [f"row {n}" for n in range(600)]


class ListReader(Reader):
    """Two splits with half of the rows each; a position is the number of rows read."""

    def splits(self) -> list[str]:
        return ["even", "odd"]

    def _rows(self, split: str) -> list[str]:
        return ROWS[split == "odd" :: 2]

    def read(self, split: str, begin: Any, end: Any = None) -> tuple[list[Any], Any] | None:
        first = begin or 0
        rows = [(row,) for row in self._rows(split)[first : first + 7]]
        return (rows, first + len(rows)) if rows else None

    def bounds(self, split: str, begin: Any = None) -> Range | None:
        return Range(split, begin, len(self._rows(split)))

    def close(self) -> None:
        pass


class ListSource(PollingSource):
    example = "ListSource.spec(optional_outputs=['row'])"
    pause = seconds("user.list.poll.secs", "how long it waits", 1e-9)
    options = (pause,)

    @classmethod
    def reader(cls, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> Reader:
        return ListReader()


def file_lines(folder: Path) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    for number in range(3):
        (folder / f"{number}.log").write_text("".join(f"{row}\n" for row in ROWS[number::3]))
    return {"user.files.folder": str(folder)}


MAKERS: dict[str, tuple[type[Any], Callable[[Path], dict[str, Any]], list[Any]]] = {
    "polling": (ListSource, lambda folder: {}, ROWS),
    "files": (FileLines, file_lines, ROWS),
    "numbers": (Sequence, lambda folder: {"user.sequence.count": 600, "user.sequence.splits": 3}, list(range(600))),
}


@pytest.fixture(params=[*MAKERS])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], tuple[Any, Recorder]]:
    """Return a function that starts the spout without memory, as after a death."""
    kind, make, _ = MAKERS[request.param]
    config = {
        **make(tmp_path / "in"), Config.TOPOLOGY_RELIABILITY_MODE: Config.ATLEAST_ONCE,
        tracked.FOLDER.key: str(tmp_path / "positions"),
    }  # fmt: skip

    def start() -> tuple[Any, Recorder]:
        spout = kind()
        recorder = Recorder.attach(spout)
        spout.keyed = SplitPositions(1, [1], spout.splits)
        spout.initialize(config, TaskPlace(component="source", tasks=(1,), source=("row",)))
        return spout, recorder

    return start


@pytest.fixture
def rows(request: pytest.FixtureRequest) -> list[Any]:
    return MAKERS[request.node.callspec.params["source"]][2]


def read_all(spout: Any, recorder: Recorder) -> None:
    before = -1
    while before != len(recorder.emitted):
        before = len(recorder.emitted)
        for _ in range(4):
            spout.next_tuple()


def test_failed_rows_are_emitted_again(source: Callable[[], tuple[Any, Recorder]], rows: list[Any]) -> None:
    spout, recorder = source()
    read_all(spout, recorder)
    first = list(recorder.emitted)
    assert sorted(emit.values[0] for emit in first) == sorted(rows)
    failed = first[::10]
    for emit in first:
        (spout.fail if emit in failed else spout.ack)(emit.tup_id)
    again = recorder.emitted[len(first) :]
    assert [(emit.values, emit.tup_id) for emit in again] == [(emit.values, emit.tup_id) for emit in failed]
    for emit in again:
        spout.ack(emit.tup_id)
        spout.fail(emit.tup_id)
    assert len(recorder.emitted) == len(first) + len(again), "what is acknowledged is done with"


def test_restart_resumes_after_acked_rows(source: Callable[[], tuple[Any, Recorder]], rows: list[Any]) -> None:
    spout, recorder = source()
    read_all(spout, recorder)
    kept = {emit.values[0] for emit in recorder.emitted[:220]} | {recorder.emitted[-1].values[0]}
    for emit in recorder.emitted:
        if emit.values[0] in kept:
            spout.ack(emit.tup_id)
    spout.settle(now=True)  # and then dies
    spout, recorder = source()
    read_all(spout, recorder)
    came = {emit.values[0] for emit in recorder.emitted}
    assert came >= set(rows) - kept, "nothing is left out"
    assert len(came) < len(rows), "and not all comes again"
    for emit in recorder.emitted:
        spout.ack(emit.tup_id)
    spout.close()
    spout, recorder = source()
    read_all(spout, recorder)
    assert recorder.emitted == []


def test_source_reads_at_most_what_it_can_keep(
    source: Callable[[], tuple[Any, Recorder]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracked, "MOST_OPEN", 10)
    spout, recorder = source()
    read_all(spout, recorder)
    assert 10 <= len(recorder.emitted) < len(ROWS)


def test_damaged_position_file_is_named(source: Callable[[], tuple[Any, Recorder]], tmp_path: Path) -> None:
    (tmp_path / "positions").mkdir()
    (tmp_path / "positions" / "Topology.source.1.json").write_text("{")
    with pytest.raises(ConnectError, match=r"positions of the source at .* cannot be read .*user.positions.folder"):
        source()


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 4)), max_size=20), st.randoms())
def test_position_is_safe_once_all_earlier_rows_are_acked(pages: list[tuple[str, int]], random: Any) -> None:
    tracker, open_rows, last = PositionTracker(), dict[str, list[tuple[int, set[Any]]]](), dict[str, int]()
    for position, (split, size) in enumerate(pages, 1):
        ids = tracker.emitted(split, [(position, n) for n in range(size)], position)
        open_rows.setdefault(split, []).append((position, set(ids)))
        everything = [row for found in open_rows.values() for _, ids_open in found for row in ids_open]
        for row in random.sample(everything, random.randint(0, len(everything))):
            tracker.ack(row)
            tracker.ack(row)
            for found in open_rows.values():
                for _, ids_open in found:
                    ids_open.discard(row)
        assert tracker.open == sum(len(ids_open) for found in open_rows.values() for _, ids_open in found)
        expected = {}
        for name, found in open_rows.items():
            done = [p for n, (p, _) in enumerate(found) if not any(ids_open for _, ids_open in found[: n + 1])]
            if done and done[-1] != last.get(name):
                expected[name] = last[name] = done[-1]
        assert tracker.safe() == expected
