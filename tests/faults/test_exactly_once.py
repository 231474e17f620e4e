"""Each line counts once with kept state, whichever processes die, stop or cannot write.

``examples/exact_words.py`` reads files that grow meanwhile. Processes of the topology are killed or stopped in an order
drawn from the seed, and the storage rejects writes for a while. In the end the sink's files hold each count of each
word exactly once, as after an undisturbed run.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from tests.support.fault_cluster import NICE, ROOT, FaultCluster
from tests.support.waiting import wait_until

FAULTS = int(os.environ.get("HERONRY_EXACT_FAULTS", "20"))
SEED = int(os.environ.get("HERONRY_EXACT_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
INTERVAL_SECONDS = 1.0
FILES, WORDS = 4, 300
_AT = re.compile(r"^(\S+ \S+) .*generation (\d+)(: restoring| runs|: starting)", re.MULTILINE)


class ExactWords(FaultCluster):
    """The example with its own folders."""

    @property
    def lines(self) -> Path:
        return self.folder / "lines"

    @property
    def counts(self) -> Path:
        return self.folder / "counts"

    def submit(self, deactivated: bool = False) -> None:
        """Submit the topology and wait until all tasks run."""
        self.lines.mkdir()
        settings = {**self._settings, "topology.stateful.checkpoint.interval.secs": INTERVAL_SECONDS}
        self.heron("submit", "local", str(ROOT / "examples" / "exact_words.py"), "ExactWords", "--name", self.name,
                   "--wait-timeout", "120", *(f"--config-property={key}={value}" for key, value in settings.items()),
                   "--", str(self.lines), str(self.counts), nice=NICE)  # fmt: skip
        self._runtime = Path(self.launch.runtime_dir)

    def write(self, draw: random.Random) -> None:
        """Append some lines to one of the files."""
        with (self.lines / f"{draw.randrange(FILES)}.txt").open("a") as file:
            file.writelines(f"and the {draw.randrange(WORDS)}\n" for _ in range(draw.randrange(60)))

    def truth(self) -> Counter[tuple[str, int]]:
        """Return the expected output."""
        words: Counter[str] = Counter()
        for path in self.lines.iterdir():
            words.update(path.read_text().split())
        return Counter({(word, count + 1): 1 for word, n in words.items() for count in range(n)})

    def written(self) -> Counter[tuple[str, int]]:
        """Return the actual output."""
        rows: Counter[tuple[str, int]] = Counter()
        for path in self.counts.glob("[!.]*"):
            for line in path.read_text().splitlines():
                row = json.loads(line)
                rows[row["word"], row["count"]] += 1
        return rows

    def recoveries(self) -> list[float]:
        """Return the seconds from each restore to the moment when all processes ran again."""
        found, since = [], None
        for at, _, what in _AT.findall(self.log("topology_master-0")):
            moment = datetime.strptime(at, "%Y-%m-%d %H:%M:%S,%f").timestamp()  # only differences matter
            if what == " runs" and since is not None:
                found.append(moment - since)
                since = None
            elif what == ": restoring" and since is None:
                since = moment
        return found


def refuse_to_write(parts: Path, seconds: float) -> None:
    """Make the checkpoint folder unavailable for this many seconds."""
    away = parts.with_name("parts-away")
    if not parts.is_dir():
        return
    parts.rename(away)
    with contextlib.suppress(IsADirectoryError):  # just created again by a process: nothing is rejected this time
        parts.write_text("no folder")
    time.sleep(seconds)
    wait_until(lambda: put_back(away, parts), "the folder of parts is there again")


def put_back(away: Path, parts: Path) -> bool:
    """Return True if the folder is restored; a process may create it at any moment."""
    with contextlib.suppress(OSError):
        if parts.is_dir():
            for file in parts.iterdir():
                file.rename(away / file.name)
            parts.rmdir()
        else:
            parts.unlink(missing_ok=True)
        away.rename(parts)
    return not away.exists()


def strike(cluster: ExactWords, draw: random.Random) -> str:
    """Kill or stop any process, or let the storage reject writes for a while; return the name of the fault."""
    if draw.random() < 0.1:
        refuse_to_write(cluster.place / "checkpoints" / "parts", draw.choice([0.5, 2.5]))
        return "storage"
    victims = sorted(cluster.titled(), key=lambda process: process.pid)
    if not victims:
        return "nobody"
    victim = draw.choice(victims)
    try:
        name = victim.cmdline()[0].rsplit(":", 1)[-1].rstrip("0123456789-_")
        if draw.random() < 0.7:
            cluster.kill_9(victim.pid)
            return f"kill {name}"
        cluster.stop(victim.pid)
        time.sleep(draw.choice([0.2, 1.0, 3.0]))
        cluster.cont(victim.pid)
    except (psutil.Error, ProcessLookupError, IndexError):
        return "too late"
    return f"stop {name}"


class Updates:
    """Repeated runs of ``heron update`` and ``heron move``."""

    def __init__(self, cluster: ExactWords, draw: random.Random) -> None:
        self._cluster, self._draw = cluster, draw
        self._running: subprocess.Popen[str] | None = None
        self.ended: Counter[str] = Counter()

    def look(self, more: bool = True) -> bool:
        """Return True if no update is running; start the next one if ``more``."""
        if self._running is not None:
            if self._running.poll() is None:
                return False
            out, err = self._running.communicate()
            code = self._running.returncode
            said = "done" if code == 0 else "taken back" if "old plan again" in err else "refused"
            assert code in (0, 1, 2, 4, 6), f"{code}\n{out}\n{err}"
            self.ended[said] += 1
            self._running = None
        if more:
            command = [*self._next(), "--timeout", "20"]
            self._running = subprocess.Popen(
                ["nice", "-n", str(NICE), sys.executable, "-m", "heron_cli", *command],
                cwd=ROOT, env=self._cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
        return not more

    def _next(self) -> list[str]:
        """Return the next command: parallelism, settings, or a moved container, whose number grows with each move."""
        draw, name = self._draw, self._cluster.name
        if draw.random() < 0.25:
            running = [1]
            for process in self._cluster.titled("stream_manager"):
                with contextlib.suppress(psutil.Error, IndexError):  # it dies at this moment
                    running.append(int(process.cmdline()[0].rsplit("-", 1)[-1]))
            return ["move", "local", name, str(draw.choice(sorted(running)))]
        command = ["update", "local", name]
        if draw.random() < 0.4:
            command += ["--runtime-config", f"count:user.round:{draw.randrange(1 << 30)}"]
        if len(command) == 3 or draw.random() < 0.5:
            command += [f"--component-parallelism={c}:{draw.randint(1, 3)}" for c in ("lines", "count", "counts")]
        return command + (["--container-number", str(draw.randint(1, 3))] if draw.random() < 0.5 else [])


@pytest.mark.parametrize("updated", [False, True], ids=["", "while it is updated"])
def test_every_line_counts_once_under_faults_and_updates(updated: bool) -> None:
    draw, struck = random.Random(SEED), Counter[str]()
    cluster = ExactWords(2)
    updates = Updates(cluster, random.Random(SEED + 1))
    print(f"HERONRY_EXACT_SEED={SEED}")
    try:
        cluster.submit()
        while struck.total() < (FAULTS // 2 if updated else FAULTS):
            cluster.write(draw)
            if draw.random() < (0.04 if updated else 0.08):
                struck[strike(cluster, draw)] += 1
            if updated:
                updates.look()
            time.sleep(0.1)
        wait_until(lambda: updates.look(more=False), "the last update has ended")
        truth = cluster.truth()
        wait_until(lambda: sum(cluster.written().values()) >= sum(truth.values()), "every word is counted")
        assert cluster.written() == truth
        recoveries = sorted(cluster.recoveries())
        assert recoveries, "nothing has been restored"
        print(f"{sum(truth.values())} words; {dict(sorted(struck.items()))}; updates: {dict(updates.ended)}")
        assert not updated or updates.ended["done"], "no update was done"
        middle = recoveries[len(recoveries) // 2]
        print(f"{len(recoveries)} recoveries: median {middle:.1f} s, {recoveries[-1]:.1f} s at most")
        cluster.kill()
    except BaseException:
        print(cluster.explain())
        raise
    finally:
        cluster.clean_up()
        cluster.flow.close()
        shutil.rmtree(cluster.folder, ignore_errors=True)
