"""``python -m benchmarks.wire_types``: CPU of encoding and decoding messages, with our codecs and with msgspec's.

msgspec would be another wire format; it stands here as the least that a codec in Python could cost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import msgspec

from heron_runtime.wire import message_codecs
from heron_runtime.wire.control import Credit
from heron_runtime.wire.data import Ack, Frame, Init, Packet
from heron_runtime.wire.data_codec import decode_packet, encode_packet
from heron_runtime.wire.master import Heartbeat, InstanceInfo
from heron_runtime.wire.metrics import ProcessMetrics

CALLS, ROUNDS = 300, 7
COLUMN, VALUES = os.urandom(8 * 512), os.urandom(16 * 1024)

LARGE = Packet(
    7, [Init(3, 5, COLUMN)], [Ack(3, COLUMN, COLUMN) for _ in range(4)],
    frames=[Frame(3, 1, task, 512, 9, 1, VALUES, b"", COLUMN, COLUMN) for task in range(16)],
)  # fmt: skip
SMALL = Packet(
    7, acks=[Ack(3, COLUMN[:64], COLUMN[:64])],
    frames=[Frame(3, 1, 2, 8, 9, 1, VALUES[:200], b"", COLUMN[:64], COLUMN[:64])],
)  # fmt: skip
HEARTBEAT = Heartbeat(instances=tuple(InstanceInfo(task, "component", 1000 + task, 7) for task in range(10)))
REPORT = ProcessMetrics(
    "count", "container_1_count_3", 1, 3, 7, 1.5, {f"__counter-{n}/default": 1.0 for n in range(30)},
    {f"__gauge-{n}": 1.0 for n in range(20)}, {f"__latency-{n}": VALUES[:300] for n in range(4)},
)  # fmt: skip
CASES: dict[str, tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    "packet, 16 frames of 512 tuples": (LARGE, encode_packet, decode_packet),
    "packet, 1 frame of 8 tuples": (SMALL, encode_packet, decode_packet),
    "heartbeat, 10 instances": (HEARTBEAT, message_codecs.TO_MASTER.encode, message_codecs.TO_MASTER.decode),
    "credit": (Credit(2**20), message_codecs.INSTANCE_CONTROL.encode, message_codecs.INSTANCE_CONTROL.decode),
    "report of a process": (REPORT, message_codecs.PROCESS_METRICS.encode, message_codecs.PROCESS_METRICS.decode),
}


def microseconds(call: Callable[[Any], Any], argument: Any) -> float:
    """CPU of one call, the best of some rounds."""
    rounds = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        for _ in range(CALLS):
            call(argument)
        rounds.append(time.process_time() - begin)
    return 1e6 * min(rounds) / CALLS


def main() -> None:
    """Print a table."""
    print("| message | encode, decode µs | msgspec |\n|---|---|---|")
    for name, (value, encode, decode) in CASES.items():
        assert decode(encode(value)) == value
        ours = microseconds(encode, value), microseconds(decode, encode(value))
        packed, unpack = msgspec.msgpack.encode(value), msgspec.msgpack.Decoder(type(value)).decode
        theirs = microseconds(msgspec.msgpack.encode, value), microseconds(unpack, packed)
        print(f"| {name} | {ours[0]:.1f}, {ours[1]:.1f} | {theirs[0]:.1f}, {theirs[1]:.1f} |")


if __name__ == "__main__":
    main()
