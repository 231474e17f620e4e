"""Driver of streamparse components over pipes, like Storm's ShellSpout and ShellBolt, without Storm.

Prints the CPU of the two Python components per tuple, including acks. The JVM part (encoding, decoding, queues, the
acker) is missing, so this is a lower bound of Storm's cost.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peer_load import TUPLES, word_maker

HERE = Path(__file__).resolve().parent
WARM = 10  # a tenth is not measured


def encoded(message: dict[str, Any]) -> bytes:
    """Return a message of the protocol as bytes."""
    return json.dumps(message).encode() + b"\nend\n"


class Component:
    """Process of one component."""

    def __init__(self, script: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, bufsize=1 << 20,
        )  # fmt: skip
        self.messages = self._read()
        context = {
            "taskid": 3, "componentid": "count", "task->component": {"1": "words", "3": "count"},
            "stream->target->grouping": {}, "streams": ["default"],
            "stream->outputfields": {"default": ["word"]}, "source->stream->grouping": {}, "source->stream->fields": {},
        }  # fmt: skip
        self.send({"conf": {"topology.name": "wc"}, "pidDir": tempfile.mkdtemp(), "context": context})
        next(self.messages)

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self.write(encoded(message))

    def write(self, data: bytes) -> None:
        """Write encoded messages."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def _read(self) -> Iterator[bytes]:
        assert self.process.stdout is not None
        lines: list[bytes] = []
        for line in self.process.stdout:
            if line == b"end\n":
                yield b"".join(lines)
                lines.clear()
            else:
                lines.append(line)

    def cpu_seconds(self) -> float:
        """Return the CPU seconds used so far."""
        return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[0]) / 1e9

    def wait_for(self, what: bytes) -> None:
        """Read until a message contains ``what``."""
        while what not in next(self.messages):
            pass


def bolt_us(count: int) -> float:
    """Return CPU microseconds of the bolt per tuple."""
    bolt, make = Component("storm_bolt.py"), word_maker(1)
    tuples = [
        encoded({"id": str(i), "comp": "words", "stream": "default", "task": 1, "tuple": [make()]})
        for i in range(count)
    ]

    def feed() -> None:
        for start in range(0, count, 100):
            bolt.write(b"".join(tuples[start : start + 100]))

    threading.Thread(target=feed, daemon=True).start()
    warm, began = count // WARM, 0.0
    for number in range(count):
        bolt.wait_for(b'"ack"')
        if number == warm:
            began = bolt.cpu_seconds()
    used = bolt.cpu_seconds() - began
    bolt.process.kill()
    return used / (count - warm) * 1e6


def spout_us(count: int) -> float:
    """Return CPU microseconds of the spout per tuple: a call, its emit, its ack."""
    spout = Component("storm_spout.py")
    warm, began = count // WARM, 0.0
    for number in range(count):
        if number == warm:
            began = spout.cpu_seconds()
        spout.send({"command": "next"})
        spout.wait_for(b'"sync"')
        spout.send({"command": "ack", "id": number + 1})
        spout.wait_for(b'"sync"')
    used = spout.cpu_seconds() - began
    spout.process.kill()
    return used / (count - warm) * 1e6


if __name__ == "__main__":
    spout, bolt = spout_us(TUPLES), bolt_us(TUPLES)
    print(json.dumps({"cpu_us_per_tuple": spout + bolt, "spout_us": spout, "bolt_us": bolt, "tuples": TUPLES}))
