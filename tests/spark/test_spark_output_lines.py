"""Messages of a job: lines printed by its program, and its end when its process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.support.servers.spark import ROOT

SAYING = """
from pathlib import Path
from heronry.streamlet import Builder, sequence, to_files

def wait(number):
    while Path(__file__).with_name("wait").exists() and number == 3:
        pass
    return {"n": number}

saying = Builder("says")
numbers = saying.source(sequence(4), name="numbers")
numbers.tap(lambda number: print("a line", number, "\u00e4"), name="say").log(name="told")
numbers.map(wait).sink(to_files("/nowhere"), name="out")
"""


def started(tmp_path: Path) -> subprocess.Popen[bytes]:
    file = tmp_path / "saying_program.py"
    file.write_text(SAYING)
    temporary = tmp_path / "tmp"
    temporary.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "heron_cli", "submit", "spark", str(file), "says", "--output-path"]
    environment = {**os.environ, "HERONRY_HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    return subprocess.Popen(
        [*command, str(tmp_path / "out"), "--master", "local[2]"], env=environment, cwd=tmp_path,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_killed_driver_is_reported_and_the_next_job_removes_its_leftovers(tmp_path: Path) -> None:
    (tmp_path / "wait").touch()
    heron = started(tmp_path)
    assert heron.stderr is not None
    seen = b""
    while b"numbers" not in seen and b"a line 0" not in seen:  # tasks run
        line = heron.stderr.readline()
        assert line, seen
        seen += line
    (driver,) = [
        child for child in psutil.Process(heron.pid).children() if "data_pipeline" in " ".join(child.cmdline())
    ]
    left = [*driver.children(recursive=True)]
    driver.send_signal(signal.SIGKILL)
    _, said = heron.communicate(timeout=300)
    assert heron.returncode == 1, said
    assert b"the process of the job was killed by SIGKILL; it has not written a result" in said
    folders = [*(tmp_path / "tmp").glob("heronry-spark-*")]
    assert len(folders) == 1
    (tmp_path / "wait").unlink()
    _, alive = psutil.wait_procs(left, timeout=300)
    assert not alive
    again = started(tmp_path)
    _, said = again.communicate(timeout=300)
    assert again.returncode == 0, said
    text = said.decode()
    for number in range(4):
        assert f"\na line {number} \u00e4\n" in text
        assert f"INFO told: {number}\n" in text
    assert [*(tmp_path / "tmp").glob("heronry-spark-*")] == []
