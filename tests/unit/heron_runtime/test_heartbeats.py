"""Heartbeat files: beats are read, and arbitrary contents written by user code count at most as silence."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.process import DOING_BYTES, SLOT_BYTES, HeartbeatReader, HeartbeatWriter, ProcessPhase


@pytest.fixture
def slots(tmp_path: Path) -> Iterator[HeartbeatReader]:
    made = HeartbeatReader(tmp_path / "beats")
    yield made
    made.close()
    assert not made.folder.exists()


def test_beats_are_read(slots: HeartbeatReader) -> None:
    one, two = HeartbeatWriter(slots.make(1)), HeartbeatWriter(slots.make(2))
    one.beat(ProcessPhase.STARTING)
    one.beat(ProcessPhase.RUNNING, "waiting " * 100)
    two.beat(ProcessPhase.STARTING, "ä" * DOING_BYTES)
    assert (slots.read(1), slots.read(2), slots.read(3)) == (
        (2, ProcessPhase.RUNNING),
        (1, ProcessPhase.STARTING),
        (0, ProcessPhase.NONE),
    )
    assert slots.doing(1) == ("waiting " * 100)[:DOING_BYTES]
    assert set(slots.doing(2)) == {"ä"}
    assert slots.doing(3) == ""


def test_new_process_starts_over_and_its_predecessor_is_ignored(slots: HeartbeatReader) -> None:
    before = HeartbeatWriter(slots.make(1))
    before.beat(ProcessPhase.RUNNING)
    slots.make(1)
    before.beat(ProcessPhase.RUNNING)
    assert slots.read(1) == (0, ProcessPhase.NONE)


def test_heartbeat_files_are_private(slots: HeartbeatReader) -> None:
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (slots.folder, slots.make(1), slots.make(2))]
    assert modes == [0o700, 0o600, 0o600]


def test_files_of_an_earlier_life_are_removed(tmp_path: Path) -> None:
    before = HeartbeatReader(tmp_path / "beats")
    HeartbeatWriter(before.make(7)).beat(ProcessPhase.RUNNING)
    slots = HeartbeatReader(tmp_path / "beats")
    assert (list(slots.folder.iterdir()), slots.read(7)) == ([], (0, ProcessPhase.NONE))
    slots.close()
    before.close()


@given(st.binary(max_size=2 * SLOT_BYTES))
def test_arbitrary_contents_are_read_or_count_as_silence(contents: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        slots = HeartbeatReader(Path(folder, "beats"))
        path = slots.make(1)
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
        os.write(descriptor, contents)
        os.close(descriptor)
        beat, phase = slots.read(1)
        assert (beat, phase) == (0, ProcessPhase.NONE) or len(contents) >= SLOT_BYTES
        assert phase in ProcessPhase
        assert len(slots.doing(1)) < SLOT_BYTES
        slots.close()
