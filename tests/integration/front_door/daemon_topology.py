"""Topology whose bolt daemonises: it starts three writers that evade the cleanup of their instance."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Grouping, Spout, Topology

LOOP = "while :; do echo $$ >> {file}; sleep 0.05; done"
KINDS = ("forked", "inherited", "emptied")


def daemonise(kind: str, folder: str) -> None:
    """Start a daemon that writes to a file named by kind, instance and process.

    It forks twice and has its own session, another working folder and no inherited descriptors. ``inherited`` and
    ``emptied`` execute another program, the latter with an empty environment.
    """
    instance = os.getpid()
    if os.fork():
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.closerange(0, 65536)
    file = f"{folder}/{kind}.{instance}.{os.getpid()}"
    command = ["/bin/sh", "-c", LOOP.format(file=file)]
    if kind == "inherited":
        os.execv(command[0], command)
    if kind == "emptied":
        os.execve(command[0], command, {})
    while True:
        with Path(file).open("a") as opened:
            opened.write("x\n")
        time.sleep(0.05)


class Numbers(Spout):
    """Spout that counts slowly."""

    outputs = ["number"]

    def next_tuple(self) -> None:
        """Emit the next number."""
        time.sleep(0.1)
        self.emit([1])


class Daemons(BasicBolt):
    """Bolt that starts daemons when it starts."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start the three daemons."""
        for kind in KINDS:
            daemonise(kind, str(config["user.folder"]))

    def process(self, tup: Any) -> None:
        """Ignore the tuple."""


class LeavesBehind(Topology):
    """Topology with one spout and one daemonising bolt. The argument is the folder."""

    config = {"user.folder": sys.argv[1] if len(sys.argv) > 1 else ""}
    numbers = Numbers.spec()
    daemons = Daemons.spec(inputs={numbers: Grouping.SHUFFLE})
