"""A full disk under the home, twice: the status names path and remedy, data flows, and checkpoints stay complete.

Once there is room, everything works as before.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.faults.test_exactly_once import ExactWords
from tests.support.waiting import wait_until

DISK_MB = 48
FULL_SECONDS = 6.0  # time of several checkpoints


def fill(disk: Path) -> Path:
    """Create a file that fills the disk."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue
    return filler


def test_full_disk_is_named_in_the_status_and_survived() -> None:
    draw = random.Random(7)
    cluster = ExactWords(2)
    cluster.home.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=700", "tmpfs", str(cluster.home)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        cluster.flow.close()
        shutil.rmtree(cluster.folder, ignore_errors=True)
        pytest.skip("needs the right to mount")
    try:
        cluster.submit()
        for _ in range(2):
            cluster.write(draw)
            filler = fill(cluster.home)
            wait_until(lambda: cluster.status()["state"] == "degraded", "the status says that something is wrong")
            cause = cluster.status()["cause"]
            assert f"the disk of {cluster.home}" in cause
            assert "free some there" in cause
            over = time.monotonic() + FULL_SECONDS
            while time.monotonic() < over:
                cluster.write(draw)
                time.sleep(0.1)
            refused = cluster.heron("submit", "local", "examples/rtac.py", "Rtac", "--", str(cluster.folder), code=1)
            assert not refused
            assert "Rtac" not in cluster.say("list", "local"), "a refused submit leaves nothing"
            filler.unlink()
            wait_until(lambda: cluster.status()["state"] == "running", "there is room again, and nothing is wrong")
        truth = cluster.truth()
        wait_until(lambda: sum(cluster.written().values()) >= sum(truth.values()), "every word is counted")
        assert cluster.written() == truth
        cluster.kill()
    except BaseException:
        print(cluster.explain())
        raise
    finally:
        cluster.clean_up()
        cluster.flow.close()
        subprocess.run(["umount", str(cluster.home)], check=False)
        shutil.rmtree(cluster.folder, ignore_errors=True)
