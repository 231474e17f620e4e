"""A real stream manager and real instances, without topology master, state store or containers.

The stream manager reads its plan from disk, as after a restart while the other processes are down. The instances are
started with ``python -m heron_instance``. User code is a module in the topology's package folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from heron_control.schedulers.topology_folder import write_secrets
from heron_runtime.launch import Launch
from heron_runtime.model.topology import ComponentSpec
from heron_runtime.net.handshake import instance_key
from heron_runtime.process import HeartbeatReader, ProcessPhase
from heron_runtime.wire.message_codecs import PHYSICAL_PLAN
from tests.support.definitions import plan_of, topology_spec
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0


class InstanceProcesses:
    """Stream manager and instances of one container."""

    def __init__(
        self, home: Path, code: str, components: tuple[ComponentSpec, ...], config: dict[str, Any], **settings: Any
    ) -> None:
        (home / "package").mkdir()
        (home / "package" / "user_code.py").write_text(code)
        write_secrets(home)
        self.home = home
        launch = Launch(
            "local", "me", "d", "t", "t-1", f"files://{home}/state", str(home), str(home), settings=settings
        )
        launch.save(home / "launch.json")
        self.plan = plan_of(topology_spec("t", *components, config=config), tables=True)
        memory = {"topology_id": "t-1", "epoch": 1, "plan": PHYSICAL_PLAN.encode(self.plan)}
        (home / "stream_manager-1.plan").write_bytes(msgspec.msgpack.encode(memory))
        self.secret, self.lifelines = launch.secret(), list[int]()
        self.slots = HeartbeatReader(launch.heartbeats(1))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def spawn(self, room: str, slot: int, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a process; its log is ``<room>-<slot>.log``."""
        command = [sys.executable, "-m", room, "--launch", str(self.home / "launch.json"), "--container", "1"]
        lifeline, ours = os.pipe()
        os.write(ours, instance_key(self.secret, "t-1", 1, slot).encode())  # the slot of an instance is its task
        self.lifelines.append(ours)
        if room == "heron_instance":
            arguments += ("--lifeline", str(lifeline))
        with (self.home / f"{room}-{slot}.log").open("ab") as log, open(lifeline, "rb"):
            return subprocess.Popen(
                [*command, "--slot", str(slot), *arguments],
                cwd=ROOT, stdout=log, stderr=log, start_new_session=True, pass_fds=[lifeline],
            )  # fmt: skip

    def start_stream_manager(self) -> None:
        """Start or restart the stream manager."""
        self.slots.make(0)
        self.processes["stream_manager"] = self.spawn("stream_manager", 0)

    def start_task(self, task: int) -> None:
        """Start or restart the instance of a task."""
        self.slots.make(task)
        arguments = ("--component", self.plan.component_of(task), "--task", str(task))
        self.processes[f"task-{task}"] = self.spawn("heron_instance", task, *arguments)

    def start(self) -> None:
        """Start everything; return when all instances run."""
        self.start_stream_manager()
        for task in self.plan.tasks():
            self.start_task(task)
        wait_until(lambda: all(self.running(task) for task in self.plan.tasks()), "all instances to run")

    def running(self, task: int) -> bool:
        """Return True once the instance has initialised its user code."""
        return self.slots.read(task)[1] is ProcessPhase.RUNNING

    def kill(self, name: str) -> None:
        """Kill a process (kill -9), and wait for its end."""
        self.processes[name].kill()
        self.processes[name].wait()

    def stop(self, name: str) -> int:
        """End a process (SIGTERM); return the exit code."""
        self.processes[name].send_signal(signal.SIGTERM)
        return self.processes[name].wait(30)

    def close(self) -> None:
        """End all running processes."""
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        for lifeline in self.lifelines:
            os.close(lifeline)
        self.slots.close()

    def log(self, task: int) -> str:
        """Return the log of a task."""
        return (self.home / f"heron_instance-{task}.log").read_text()


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
