"""Codec of packets. It is hand-written, since it is the only codec on the data path."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from heron_runtime.model.dataflow import FailKind
from heron_runtime.wire.data import Ack, Fail, Frame, Init, Packet, Reason, Verdict
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.generated import heronry_data_pb2 as pb


def encode_packet(packet: Packet) -> bytes:
    """Return `packet` as protobuf bytes."""
    message = pb.Packet(sequence=packet.sequence)
    for init in packet.inits:
        message.inits.add(task=init.task, first_root=init.first_root, xors=init.xors)
    for ack in packet.acks:
        message.acks.add(task=ack.task, roots=ack.roots, xors=ack.xors)
    for fail in packet.fails:
        message.fails.add(task=fail.task, roots=fail.roots, reason=_encode_reason(fail.reason))
    for verdict in packet.verdicts:
        reason = None if verdict.reason is None else _encode_reason(verdict.reason)
        message.verdicts.add(task=verdict.task, roots=verdict.roots, reason=reason)
    add_frame = message.frames.add
    for frame in packet.frames:
        add_frame(
            source_task=frame.source_task,
            stream=frame.stream,
            destination_task=frame.destination_task,
            count=frame.count,
            routing_version=frame.routing_version,
            codec=frame.codec,
            offsets=frame.offsets,
            roots=frame.roots,
            keys=frame.keys,
            values=frame.values,
            tuple_weight=frame.tuple_weight,
        )
    return message.SerializeToString()


def decode_packet(data: bytes) -> Packet:
    """Return the packet in ``data``. Raises MalformedMessage if it is invalid or a column has a wrong length."""
    try:
        message = pb.Packet.FromString(data)
    except DecodeError as error:
        raise MalformedMessage(f"not a packet: {error}") from None
    packet = Packet(
        sequence=message.sequence,
        inits=[Init(m.task, m.first_root, m.xors) for m in message.inits],
        acks=[Ack(m.task, m.roots, m.xors) for m in message.acks],
        fails=[Fail(m.task, m.roots, _decode_reason(m.reason)) for m in message.fails],
        verdicts=[
            Verdict(m.task, m.roots, _decode_reason(m.reason) if m.HasField("reason") else None)
            for m in message.verdicts
        ],
        frames=[
            Frame(
                m.source_task,
                m.stream,
                m.destination_task,
                m.count,
                m.routing_version,
                m.codec,
                m.values,
                m.offsets,
                m.roots,
                m.keys,
                m.tuple_weight,
            )
            for m in message.frames
        ],
    )
    _check_columns(packet)
    return packet


def _encode_reason(reason: Reason) -> pb.Reason:
    return pb.Reason(
        kind=reason.kind.value,
        component=reason.component,
        task=reason.task,
        message=reason.message,
        traceback=reason.traceback,
    )


def _decode_reason(message: pb.Reason) -> Reason:
    try:
        kind = FailKind(message.kind)
    except ValueError:
        raise MalformedMessage(f"unknown kind of failure: {message.kind!r}") from None
    return Reason(kind, message.component, message.task, message.message, message.traceback)


def _check_columns(packet: Packet) -> None:
    for init in packet.inits:
        if not init.xors or len(init.xors) % 8:
            raise MalformedMessage(f"init of task {init.task}: a uint64 column cannot have {len(init.xors)} bytes")
    for ack in packet.acks:
        if len(ack.roots) != len(ack.xors) or len(ack.roots) % 8:
            raise MalformedMessage(f"ack for task {ack.task}: columns of {len(ack.roots)} and {len(ack.xors)}")
    settled: list[Fail | Verdict] = [*packet.fails, *packet.verdicts]
    for item in settled:
        if len(item.roots) % 8:
            raise MalformedMessage(f"roots of task {item.task}: {len(item.roots)} bytes")
    for frame in packet.frames:
        roots = len(frame.roots)
        wrong = roots != len(frame.keys) or roots % 8
        if frame.offsets:
            wrong = wrong or len(frame.offsets) != 4 * (frame.count + 1)
        else:
            wrong = wrong or roots not in (0, 8 * frame.count)
        if wrong:
            raise MalformedMessage(
                f"frame {frame.source_task} to {frame.destination_task}: root columns do not match {frame.count} tuples"
            )
