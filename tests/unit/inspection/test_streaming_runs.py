"""Streaming runs: listed while they live, removed for any end, and stoppable."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from heron_control.inspection.streaming_runs import claimed, living, stop
from heron_runtime.failures import NotFound

ABOUT = {"file": "/p.py", "master": "local[2]", "checkpoint": "/c", "output": "/o", "every_seconds": 1.0}
RUN = """
import sys, time
from pathlib import Path
from heron_control.inspection.streaming_runs import claimed

with claimed("words", Path(sys.argv[1]), file="/p.py", master="m", checkpoint="/c", output="/o", every_seconds=None):
    try:
        print("claimed", flush=True)
        time.sleep(600)
    except KeyboardInterrupt:
        print("asked to end", flush=True)
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a run in another process, which treats SIGTERM like Ctrl-C, as drivers do."""
    code = "import signal; signal.signal(signal.SIGTERM, signal.default_int_handler)\n" + RUN
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "claimed\n"
        yield process
        process.kill()


def test_run_reports_its_state_until_it_ends(tmp_path: Path) -> None:
    assert living(tmp_path / "none") == []
    with claimed("words", tmp_path, **ABOUT) as claim:
        assert [(run.name, run.state, run.micro_batch) for run in living(tmp_path)] == [("words", "starting", -1)]
        claim.tell(state="waiting", micro_batch=3, rows=30, batch_seconds=1.5)
        (run,) = living(tmp_path)
        assert (run.state, run.micro_batch, run.input_rate, run.checkpoint) == ("waiting", 3, 20.0, "/c")
    assert living(tmp_path) == []
    assert not list(tmp_path.glob("*.json"))


def test_two_runs_of_a_program_have_distinct_names(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    with claimed("words", tmp_path, **ABOUT):
        assert {run.name: run.pid == other.pid for run in living(tmp_path)} == {"words": True, "words-2": False}


def test_killed_run_is_removed_and_its_name_is_free(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert (tmp_path / "words.json").exists()
    assert living(tmp_path) == []
    with pytest.raises(NotFound, match="no streaming run 'words'"):
        stop("words", tmp_path)
    with claimed("words", tmp_path, **ABOUT) as claim:
        assert claim.run.name == "words"


def test_run_ends_on_request(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    with pytest.raises(NotFound, match="running: 'words'"):
        stop("../words", tmp_path)
    assert stop("words", tmp_path).checkpoint == "/c"
    assert other.stdout is not None
    assert other.stdout.readline() == "asked to end\n"
    assert other.wait() == 0
    assert living(tmp_path) == []
