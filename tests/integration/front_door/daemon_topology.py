"""A topology whose bolt daemonises: it leaves three writers behind that do all they can to be left alone."""

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
    """Fork twice, with a session of its own, another folder and no descriptors; then write for ever to a file that is
    named by kind, instance and process. ``inherited`` and ``emptied`` become another program, the latter with an empty
    environment."""
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
    """Counts, slowly."""

    outputs = ["number"]

    def next_tuple(self) -> None:
        """One."""
        time.sleep(0.1)
        self.emit([1])


class Daemons(BasicBolt):
    """Daemonises at its start."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Leave the three behind."""
        for kind in KINDS:
            daemonise(kind, str(config["user.folder"]))

    def process(self, tup: Any) -> None:
        """Nothing."""


class LeavesBehind(Topology):
    """One of each. The argument is the folder."""

    config = {"user.folder": sys.argv[1] if len(sys.argv) > 1 else ""}
    numbers = Numbers.spec()
    daemons = Daemons.spec(inputs={numbers: Grouping.SHUFFLE})
