"""A group beside others is told whole, and ends with the run that has begun it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest
from beside import Beside

TESTS = Path(__file__).resolve().parents[1]
PATIENCE_SECONDS = 60.0


@pytest.mark.parametrize("code", [0, 3])
def test_it_is_joined_with_what_it_has_printed(tmp_path: Path, code: int) -> None:
    program = f"import sys; print('out'); print('err', file=sys.stderr); sys.exit({code})"
    began = time.monotonic()
    other = Beside([sys.executable, "-c", program], tmp_path)
    other._waiter.join(PATIENCE_SECONDS)
    ended = time.monotonic()
    time.sleep(0.1)  # the others go on
    passed, minutes, text = other.join()
    assert (passed, sorted(text.split())) == (code == 0, ["err", "out"])
    assert 0 < minutes <= (ended - began) / 60, "what came behind its end is not its time"


def test_who_ends_the_run_ends_it_too(tmp_path: Path) -> None:
    waits = textwrap.dedent(
        f"""
        import sys, time
        sys.path.insert(0, {str(TESTS)!r})
        from pathlib import Path
        from beside import Beside
        other = Beside([sys.executable, "-c", "import time; time.sleep(600)"], Path("."))
        print(other._process.pid, flush=True)
        time.sleep(600)
        """
    )
    with subprocess.Popen([sys.executable, "-c", waits], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as run:
        assert run.stdout is not None
        other = psutil.Process(int(run.stdout.readline()))
        assert os.getpgid(other.pid) == other.pid
        run.send_signal(signal.SIGTERM)
        assert run.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
        assert psutil.wait_procs([other], PATIENCE_SECONDS)[1] == []
