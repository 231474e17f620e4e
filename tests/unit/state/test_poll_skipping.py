"""Skipped polls of the files store: only while nothing can have been written."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.state.files import SETTLED_SECS, SURE_EVERY_SECS, FileChangeDetector, Trace, traces_of

OLD = 1_000_000.0  # Unix time in seconds


def trace(written: float, size: int = 1, inode: int = 7) -> Trace:
    return (1, inode, size, int(written * 1e9))


def test_first_check_reads() -> None:
    assert FileChangeDetector().needed(0.0, (trace(OLD), None))


def test_unchanged_files_are_reread_only_after_the_maximum_interval() -> None:
    glance, traces = FileChangeDetector(), (trace(OLD), trace(OLD))
    glance.has_read(10.0, OLD + SETTLED_SECS, traces)
    assert not glance.needed(10.0 + SURE_EVERY_SECS - 0.01, traces)
    assert glance.needed(10.0 + SURE_EVERY_SECS, traces)


def test_recently_written_files_are_reread() -> None:
    """The rest of that commit may not be readable yet."""
    glance, traces = FileChangeDetector(), (trace(OLD), trace(OLD + 100))
    glance.has_read(10.0, OLD + 100 + SETTLED_SECS - 0.01, traces)
    assert glance.needed(10.0, traces)


def test_modification_time_in_the_future_is_not_trusted() -> None:
    glance, traces = FileChangeDetector(), (trace(OLD + 3600),)
    glance.has_read(10.0, OLD, traces)
    assert glance.needed(10.0, traces)


def test_missing_files_are_not_trusted() -> None:
    glance = FileChangeDetector()
    glance.has_read(10.0, OLD, (None, None))
    assert glance.needed(10.0, (None, None))


def test_error_forces_a_read() -> None:
    glance, traces = FileChangeDetector(), (trace(OLD),)
    glance.has_read(10.0, OLD + 60, traces)
    glance.forget()
    assert glance.needed(10.0, traces)


MOVES = st.lists(st.tuples(st.floats(0.001, 8.0), st.booleans()), max_size=60)


@given(MOVES, st.floats(0.0, SETTLED_SECS - 0.1))
def test_every_commit_is_read(moves: list[tuple[float, bool]], sync: float) -> None:
    """Time passes, and some commits become readable ``sync`` seconds after they are logged (SQLite's delay)."""
    glance, now = FileChangeDetector(), 100.0
    logged, size = now, 0
    readable_at: list[float] = []
    read = 0
    last_glance = now
    for step, commits in moves:
        now += step
        traces = (trace(OLD), trace(OLD + logged, size))
        if glance.needed(now, traces):
            glance.has_read(now, OLD + now, traces)
            read = sum(at <= now for at in readable_at)
        else:  # skipped: nothing was readable that the last read has missed
            assert read == sum(at <= now for at in readable_at)
            assert now - last_glance < SURE_EVERY_SECS + 8.0
        last_glance = now
        if commits:
            logged, size = now, size + 1
            readable_at.append(now + sync)


def test_traces_show_writes_and_replacements(tmp_path: Path) -> None:
    path, missing = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"x")
    os.utime(path, ns=(0, 0))
    paths = (str(path), str(missing))
    first = traces_of(paths)
    assert first[1] is None
    path.write_bytes(b"y")  # same length
    second = traces_of(paths)
    assert second[0] != first[0]
    path.rename(missing)
    assert traces_of(paths) == (None, second[0])
