"""Topology whose bolt tries, as malicious user code would, to reach Heronry's processes and files.

The bolt runs in its topology's folder and records what succeeded in ``pried-PID.json`` in its working folder.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Grouping, Spout, Topology

PTRACE_ATTACH, PTRACE_DETACH = 16, 17
SECRETS = ("secret", "key.pem", "store-credential", "launch.json", "definition.granted")


def attach(pid: int) -> None:
    """Trace another process, as a debugger does."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_ATTACH, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace was refused")
    os.waitpid(pid, 0x40000000)
    libc.ptrace(PTRACE_DETACH, pid, None, None)


ATTEMPTS: dict[str, Callable[[int], Any]] = {
    "environ": lambda pid: Path(f"/proc/{pid}/environ").read_bytes(),
    "mem": lambda pid: Path(f"/proc/{pid}/mem").open("rb").close(),
    "maps": lambda pid: Path(f"/proc/{pid}/maps").read_text(),
    "fd": lambda pid: os.listdir(f"/proc/{pid}/fd"),
    "links": lambda pid: [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()],
    "cwd": lambda pid: os.readlink(f"/proc/{pid}/cwd"),
    "kill": lambda pid: os.kill(pid, 0),
    "ptrace": attach,
}
LOOKS = ("environ", "mem", "maps", "links", "cwd")  # attempts that read what a process holds


def goes(attempt: Callable[[], Any]) -> bool:
    """Return True if the attempt is not refused."""
    try:
        attempt()
    except OSError:
        return False
    return True


def seen_processes(topology: str) -> dict[str, list[str]]:
    """Return, by title, the operations that succeeded on Heronry's processes; others are keyed by program and pid."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            title = (entry / "cmdline").read_bytes().strip(b"\0 ").decode(errors="replace")
            name = title.rpartition(":")[2] if title.startswith(f"heron:{topology}:") else ""
            name = name or (f"{(entry / 'comm').read_text().strip()}-{entry.name}" if entry.name == "1" else "")
        except OSError:
            continue
        if name and entry.name != str(os.getpid()):
            found[name] = [what for what, act in ATTEMPTS.items() if goes(lambda a=act, p=int(entry.name): a(p))]
    return found


def seen_child() -> list[str]:
    """Return what can be read of a child process, which is everything unless this process is confined."""
    if (child := os.fork()) == 0:
        time.sleep(600)
    try:
        return [what for what in LOOKS if goes(lambda w=what: ATTEMPTS[w](child))]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def read_files(home: str, places: list[str]) -> list[str]:
    """Return the secret files that could be read and the folders beside the working folder that could be listed."""
    found = [place for place in places if goes(lambda p=place: os.listdir(p))]
    for place in (home, *places):
        for name in SECRETS:
            file = Path(place, name)
            if goes(file.read_bytes):
                found.append(str(file))
    return found


def move_away(name: str) -> None:
    """Move a file of Heronry's away and back."""
    os.rename(name, f"{name}.mine")
    os.rename(f"{name}.mine", name)


def own_beats() -> Path:
    """Return the path of this process's heartbeat file, which it has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return next(Path(line.split()[-1]) for line in lines if "/beats" in line)


def becomes(uid: int) -> bool:
    """Return True if a child process can become this user."""
    if (child := os.fork()) == 0:
        os._exit(0 if goes(lambda: os.setuid(uid)) else 1)
    return os.waitpid(child, 0)[1] == 0


class Numbers(Spout):
    """Spout that counts slowly."""

    outputs = ["number"]

    def next_tuple(self) -> None:
        """Emit the next number."""
        time.sleep(0.1)
        self.emit([1])


class Pry(BasicBolt):
    """Bolt that makes all attempts when it starts."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Record which attempts succeeded."""
        home = Path.cwd()
        status = dict(
            line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line
        )
        Path("streamlet", "state").mkdir(parents=True, exist_ok=True)
        Path("streamlet", "state", f"{os.getpid()}.log").write_text("kept")
        answer = {
            "uids": os.getresuid(),
            "gids": os.getresgid(),
            "groups": os.getgroups(),
            "home": os.environ["HOME"],
            "capabilities": {name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")},
            "no_new_privileges": status["NoNewPrivs"],
            "environ": dict(os.environ),
            "child": seen_child(),
            "processes": seen_processes(context.get_topology_name()),
            "read": read_files(
                str(home),
                [
                    str(home / "log-files"),
                    *(f"/var/lib/heronry/{name}" for name in ("topology", "start", "start/1")),
                ],
            ),
            "removed": [
                n
                for n in ("package", "secret", "log-files", "topology", "run", "start")
                if goes(lambda n=n: move_away(n))
            ],
            "became": [uid for uid in (0, 10001) if becomes(uid)],
            "beats": [n for n in range(10) if goes(lambda n=n: own_beats().with_name(str(n)).open("r+b").close())],
            "stdout": goes(lambda: Path("/dev/stdout").open("w").close()),
        }
        file = home / f"pried-{os.getpid()}.json"
        file.with_suffix(".part").write_text(json.dumps(answer))
        file.with_suffix(".part").rename(file)

    def process(self, tup: Any) -> None:
        """Ignore the tuple."""


class Prying(Topology):
    """Topology numbers -> pry."""

    numbers = Numbers.spec()
    pry = Pry.spec(inputs={numbers: Grouping.SHUFFLE})
