"""Acks, fails and verdicts that wait for a link: coalesced per task, cut to fit packets, never in need of credit."""

from __future__ import annotations

from typing import TypeVar

from heron_runtime.wire.data import Ack, Fail, Packet, Reason, Verdict

CHUNK_BYTES = 64 * 1024
MAX_REASONS = 256
_ITEM_OVERHEAD_BYTES = 32

K = TypeVar("K")


class Settlements:
    """The queue. Each column is kept as the chunks it came in and joined once, when it leaves."""

    def __init__(self) -> None:
        self._acks: dict[int, list[tuple[bytes, bytes]]] = {}
        self._fails: dict[tuple[int, Reason], list[bytes]] = {}
        self._verdicts: dict[tuple[int, Reason | None], list[bytes]] = {}
        self.bytes = 0

    def __bool__(self) -> bool:
        return self.bytes > 0

    def ack(self, task: int, roots: bytes, xors: bytes) -> None:
        """For the tracker of ``task``."""
        chunks = self._acks.setdefault(task, [])
        for start in range(0, len(roots), CHUNK_BYTES):
            chunks.append((roots[start : start + CHUNK_BYTES], xors[start : start + CHUNK_BYTES]))
        self.bytes += 2 * len(roots)

    def fail(self, task: int, roots: bytes, reason: Reason) -> None:
        """For the tracker of ``task``."""
        if len(self._fails) >= MAX_REASONS:  # texts are for reading; their number is bounded
            reason = Reason(reason.kind, reason.component, reason.task)
        self._add(self._fails.setdefault((task, reason), []), roots)

    def verdict(self, task: int, roots: bytes, reason: Reason | None) -> None:
        """For the spout task itself; no reason means complete."""
        if reason is not None and len(self._verdicts) >= MAX_REASONS:
            reason = Reason(reason.kind, reason.component, reason.task)
        self._add(self._verdicts.setdefault((task, reason), []), roots)

    def drop_verdicts(self) -> None:
        """Forget the verdicts: the spout's process is gone."""
        self.bytes -= sum(len(chunk) for chunks in self._verdicts.values() for chunk in chunks)
        self._verdicts.clear()

    def fill(self, packet: Packet, room: int) -> int:
        """Move what fits into ``room`` bytes to ``packet``; returns the room that is left."""
        for task in list(self._acks):
            chunks = self._acks[task]
            taken, room = _take([2 * len(roots) for roots, _ in chunks], room)
            if taken:
                roots = b"".join([roots for roots, _ in chunks[:taken]])
                packet.acks.append(Ack(task, roots, b"".join([xors for _, xors in chunks[:taken]])))
                self.bytes -= 2 * len(roots)
            if taken < len(chunks):
                self._acks[task] = chunks[taken:]
                return 0
            del self._acks[task]
        for key in list(self._fails):
            roots, room = self._cut(self._fails, key, room - _text_bytes(key[1]))
            if roots:
                packet.fails.append(Fail(key[0], roots, key[1]))
            if key in self._fails:
                return 0
        for verdict_key in list(self._verdicts):
            roots, room = self._cut(self._verdicts, verdict_key, room - _text_bytes(verdict_key[1]))
            if roots:
                packet.verdicts.append(Verdict(verdict_key[0], roots, verdict_key[1]))
            if verdict_key in self._verdicts:
                return 0
        return room

    def check(self) -> None:
        """Assert every invariant."""
        if not (self._acks or self._fails or self._verdicts):
            assert not self.bytes, "bytes are counted"
            return
        acks = sum(len(roots) + len(xors) for chunks in self._acks.values() for roots, xors in chunks)
        fails = sum(len(chunk) for chunks in self._fails.values() for chunk in chunks)
        verdicts = sum(len(chunk) for chunks in self._verdicts.values() for chunk in chunks)
        assert self.bytes == acks + fails + verdicts, "bytes are counted"

    def _add(self, chunks: list[bytes], roots: bytes) -> None:
        for start in range(0, len(roots), CHUNK_BYTES):
            chunks.append(roots[start : start + CHUNK_BYTES])
        self.bytes += len(roots)

    def _cut(self, queue: dict[K, list[bytes]], key: K, room: int) -> tuple[bytes, int]:
        chunks = queue[key]
        taken, room = _take([len(chunk) for chunk in chunks], room)
        roots = b"".join(chunks[:taken])
        self.bytes -= len(roots)
        if taken == len(chunks):
            del queue[key]
        else:
            queue[key] = chunks[taken:]
        return roots, room


def _text_bytes(reason: Reason | None) -> int:
    return 0 if reason is None else 4 * (len(reason.message) + len(reason.traceback))


def _take(sizes: list[int], room: int) -> tuple[int, int]:
    """How many of the chunks fit, and the room that is left."""
    room -= _ITEM_OVERHEAD_BYTES
    taken = 0
    for size in sizes:
        if size > room:
            break
        room -= size
        taken += 1
    return taken, room
