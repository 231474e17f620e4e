"""Real instances with a real stream manager: exact results, deaths while data flows, clean stops."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from heron_runtime.model.topology import (
    ComponentKind,
    ComponentSpec,
    GroupingKind,
    GroupingSpec,
    InputSpec,
    StreamSchema,
)
from tests.support.instance_processes import InstanceProcesses
from tests.support.waiting import wait_until

CODE = '''
import pathlib, time
from heronry.api.component import BasicBolt, Bolt, Spout

class Lines(Spout):
    """Emits numbers until each is acked; remembers what is acked in a file."""
    def initialize(self, config, context):
        self.file = open(config["user.folder"] + f"/acked-{context.get_task_id()}", "a", buffering=1)
        self.total = config["user.total"]
        self.next, self.again, self.reasons = 0, [], []
        done = {int(line) for line in open(self.file.name)}
        self.left = [n for n in range(self.total) if n not in done]
        self.done = len(done)
        self.failures = open(config["user.folder"] + f"/failed-{context.get_task_id()}", "a", buffering=1)
    def next_tuple(self):
        if self.again:
            n = self.again.pop()
        elif self.next < len(self.left):
            n = self.left[self.next]
            self.next += 1
        else:
            return
        self.emit([f"word{n % 100}", n], tup_id=n)
    def ack(self, tup_id):
        self.file.write(f"{tup_id}\\n")
    def fail(self, tup_id, reason):
        self.failures.write(f"{tup_id} {reason.kind} {reason.component} {reason.message}\\n")
        self.again.append(tup_id)

class Split(Bolt):
    def process(self, tup):
        self.emit([tup["word"], tup["n"]], anchors=[tup])
        self.ack(tup)

class Sink(BasicBolt):
    def initialize(self, config, context):
        self.file = open(config["user.folder"] + f"/seen-{context.get_task_id()}", "a", buffering=1)
        self.fail_at = config.get("user.fail_at", -1)
        self.slow = config.get("user.slow", 0)
    def process(self, tup):
        if tup["n"] == self.fail_at:
            self.fail_at = -1
            raise ValueError("not this one")
        if self.slow:
            time.sleep(self.slow)
        self.file.write(f"{tup['n']} {tup['word']}\\n")
    def close(self):
        self.file.write("closed\\n")
'''
ROW = (StreamSchema("default", ("word", "n")),)


def make(home: Path, total: int = 20_000, **config: Any) -> InstanceProcesses:
    shuffle, by_word = GroupingSpec(GroupingKind.SHUFFLE), GroupingSpec(GroupingKind.FIELDS, ("word",))
    components = (
        ComponentSpec("lines", ComponentKind.SPOUT, "user_code:Lines", 1, ROW),
        ComponentSpec(
            "split", ComponentKind.BOLT, "user_code:Split", 1, ROW, (InputSpec("lines", "default", shuffle),)
        ),
        ComponentSpec("sink", ComponentKind.BOLT, "user_code:Sink", 2, (), (InputSpec("split", "default", by_word),)),
    )
    settings = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        "topology.message.timeout.secs": 5,
        "user.folder": str(home),
        "user.total": total,
        **config,
    }
    return InstanceProcesses(home, CODE, components, settings)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def acked(home: Path) -> Counter[int]:
    return (
        Counter(int(line) for line in (home / "acked-1").read_text().split())
        if (home / "acked-1").exists()
        else Counter()
    )


def seen(home: Path) -> Counter[int]:
    lines = [line for task in (3, 4) for line in (home / f"seen-{task}").read_text().splitlines()]
    return Counter(int(line.split()[0]) for line in lines if line[0] != "c")


def finish(cluster: InstanceProcesses, total: int) -> None:
    wait_until(lambda: len(acked(cluster.home)) == total, "every number to be acked")


def test_every_tuple_arrives_exactly_once_and_is_acked_once(home: Path) -> None:
    cluster = make(home)
    try:
        cluster.start()
        finish(cluster, 20_000)
        assert set(acked(home).values()) == {1}
        assert seen(home) == Counter(range(20_000))
        assert (home / "failed-1").read_text() == ""
        homes = [{line.split()[1] for line in (home / f"seen-{task}").read_text().splitlines()} for task in (3, 4)]
        assert not homes[0] & homes[1], "a word has two homes"
        for task in (1, 2, 3, 4):
            assert cluster.stop(f"task-{task}") == 0
        assert (home / "seen-3").read_text().endswith("closed\n")
    finally:
        cluster.close()


def test_no_tuple_is_lost_when_bolt_and_stream_manager_are_killed(home: Path) -> None:
    cluster = make(home, 8_000, **{"topology.max.spout.pending": 500, "user.slow": 0.001})
    try:
        cluster.start()
        wait_until(lambda: len(acked(home)) > 500, "data to flow")
        cluster.kill("task-2")
        cluster.start_task(2)
        wait_until(lambda: cluster.running(2), "the bolt to be back")
        before = len(acked(home))
        wait_until(lambda: len(acked(home)) > before + 500, "data to flow again")
        cluster.kill("stream_manager")  # with thousands of tuples still to come
        cluster.start_stream_manager()
        finish(cluster, 8_000)
        assert set(seen(home)) == set(range(8_000))
        assert set(acked(home).values()) == {1}
        assert "stream_manager_lost" in (home / "failed-1").read_text()
    finally:
        cluster.close()


def test_stopped_instance_returns_the_input_of_slow_user_code(home: Path) -> None:
    cluster = make(home, 2_000, **{"user.slow": 0.005, "topology.message.timeout.secs": 600})
    try:
        cluster.start()
        wait_until(lambda: len(acked(home)) > 20, "data to flow")
        assert cluster.stop("task-3") == 0
        cluster.start_task(3)
        finish(cluster, 2_000)
        assert set(seen(home)) == set(range(2_000))
    finally:
        cluster.close()


def test_wrong_class_is_named_in_the_log_and_sets_the_exit_code(home: Path) -> None:
    cluster = make(home)
    try:
        (home / "package" / "user_code.py").write_text("import no_such_module\n")
        cluster.start_stream_manager()
        cluster.start_task(2)
        assert cluster.processes["task-2"].wait(30) == 1
        assert "no_such_module" in cluster.log(2)
        assert "requirements.txt" in cluster.log(2)
    finally:
        cluster.close()


ARGUMENTS = """
import pathlib, sys
from heronry.api.component import Spout

GIVEN = sys.argv[1:]

class Reader(Spout):
    def initialize(self, config, context):
        pathlib.Path(config["user.folder"], "given").write_text(repr(GIVEN))
    def next_tuple(self):
        pass
"""


def test_tasks_import_their_module_with_the_arguments_of_the_submit(home: Path) -> None:
    spout = ComponentSpec("reader", ComponentKind.SPOUT, "user_code:Reader", 1, ROW)
    given = ["orders", "--from", "2026"]
    cluster = InstanceProcesses(home, ARGUMENTS, (spout,), {"user.folder": str(home), "topology.arguments": given})
    try:
        cluster.start()
        wait_until(lambda: (home / "given").exists() and (home / "given").read_text(), "the spout begins")
        assert (home / "given").read_text() == repr(given)
    finally:
        cluster.close()
