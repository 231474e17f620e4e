"""Decoding of PostgreSQL change messages, from positions to acks, without a server."""

from __future__ import annotations

import datetime as dt
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronry.api.config import Config
from heronry.connect.acked import Acked
from heronry.connect.pgoutput import Change, Committed, Messages, Unknown, lsn_of, text_of
from heronry.connect.polling import Confirming

AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
MICROS = int((AT - dt.datetime(2000, 1, 1, tzinfo=dt.UTC)).total_seconds()) * 1_000_000


def begin(lsn: int = 0x100, xid: int = 7) -> bytes:
    return b"B" + struct.pack("!QqI", lsn, MICROS, xid)


def commit(end: int) -> bytes:
    return b"C" + struct.pack("!BQQq", 0, end - 8, end, MICROS)


def table(number: int = 1, schema: bytes = b"public", key: str = "id", columns: tuple[str, ...] = ("id", "v")) -> bytes:
    told = b"".join(struct.pack("!B", name == key) + name.encode() + struct.pack("!xIi", 25, -1) for name in columns)
    return b"R" + struct.pack("!I", number) + schema + b"\0t\0d" + struct.pack("!H", len(columns)) + told


def row(kind: bytes, **parts: tuple[bytes | str | None, ...]) -> bytes:
    """Encode a row message; ``u`` marks an unchanged value."""
    told = kind + struct.pack("!I", 1)
    for part, values in parts.items():
        told += part.encode() + struct.pack("!H", len(values))
        for value in values:
            if isinstance(value, bytes):
                told += b"t" + struct.pack("!I", len(value)) + value
            else:
                told += b"n" if value is None else b"u"
    return told


def taken(*messages: bytes) -> list[Any]:
    """Decode the messages of a transaction whose table is known."""
    made = Messages(lambda kind, data: data.decode())
    for message in (begin(), table()):
        assert made.take(message) == []
    return [found for message in messages for found in [made.take(message)]]


def changes(*messages: bytes) -> list[Change]:
    return [change for found in taken(*messages) for change in found]


def test_each_kind_of_change_is_decoded() -> None:
    insert, update, moved, delete, emptied = changes(
        row(b"I", N=(b"1", b"a")), row(b"U", N=(b"1", None)), row(b"U", K=(b"1", None), N=(b"2", b"b")),
        row(b"D", K=(b"2", None)), b"T" + struct.pack("!IBI", 1, 0, 1),
    )  # fmt: skip
    assert insert == Change("insert", "public.t", {"id": "1", "v": "a"}, None, (), 0x100, 7, AT, 0)
    assert update[:5] == ("update", "public.t", {"id": "1", "v": None}, {"id": "1"}, ())
    assert moved[:5] == ("update", "public.t", {"id": "2", "v": "b"}, {"id": "1"}, ())
    assert delete[:5] == ("delete", "public.t", None, {"id": "2"}, ())
    assert emptied == Change("truncate", "public.t", None, None, (), 0x100, 7, AT, 4)


def test_unchanged_value_is_named_unless_the_old_row_has_it() -> None:
    left, whole = changes(
        row(b"U", N=(b"1", "u")), row(b"U", O=(b"1", b"old"), N=(b"1", "u")),
    )  # fmt: skip
    assert left[2:5] == ({"id": "1"}, {"id": "1"}, ("v",))
    assert whole[2:5] == ({"id": "1", "v": "old"}, {"id": "1", "v": "old"}, ())


def test_commit_counts_changes_and_numbers_restart() -> None:
    _, _, first, _, again, second = taken(
        row(b"I", N=(b"1", b"a")), row(b"I", N=(b"2", b"a")), commit(0x200), begin(0x300), row(b"I", N=(b"3", b"a")),
        commit(0x400),
    )  # fmt: skip
    assert (first, second) == (Committed(0x200, 2), Committed(0x400, 1))
    assert (again[0].number, again[0].lsn) == (0, 0x300)


def test_messages_without_rows_are_ignored_and_unknown_ones_raise() -> None:
    assert changes(b"Y" + bytes(8), b"O" + bytes(9), table(2, b"")) == []
    with pytest.raises(Unknown, match="'S', which protocol version 1 does not have"):
        changes(b"S")


@given(st.integers(0, 2**64 - 1))
def test_log_positions_round_trip(place: int) -> None:
    assert lsn_of(text_of(place)) == place
    assert text_of(lsn_of("16/B374D848")) == "16/B374D848"


@given(st.lists(st.integers(0, 3), max_size=8), st.randoms(use_true_random=False))
def test_position_is_safe_once_all_earlier_rows_are_acked(sizes: list[int], random: Any) -> None:
    """Model: the furthest position before the first open row, reported once."""
    acked, places, ids = Acked(), [], []
    last = None
    for place, size in enumerate(sizes):
        given_now = acked.given([[place, n] for n in range(size)], place)
        assert [acked.row(number) for number in given_now] == [[place, n] for n in range(size)]
        ids += given_now
        places.append((place, set(given_now)))
        for number in random.sample(ids, random.randint(0, len(ids))):
            acked.ack(number)
            assert acked.row(number) is None
            for _, open_ids in places:
                open_ids.discard(number)
        safe = None
        for name, open_ids in places:
            if open_ids:
                break
            safe = name
        found = acked.floor()
        assert found == (safe if safe != last else None)
        last = safe
        assert acked.floor() is None


class Piecemeal:
    """Reader of a split whose transactions have three changes each and arrive singly."""

    def __init__(self) -> None:
        self.confirmed: list[int] = []

    def read(self, _: str, begin: int | None, end: Any = None) -> tuple[list[Any], int] | None:
        at = begin or 0
        return ([[at]], at + 1) if at < (end or 7) else None

    def confirm(self, _: str, position: int) -> bool:
        self.confirmed.append(position)
        return position % 3 == 0


def confirming(mode: str) -> tuple[Piecemeal, Confirming]:
    reader = Piecemeal()
    return reader, Confirming(reader, {Config.TOPOLOGY_RELIABILITY_MODE: mode})  # type: ignore[arg-type]  # reason: what is asked of a reader


def test_positions_of_a_complete_checkpoint_are_confirmed() -> None:
    reader, made = confirming(Config.EFFECTIVELY_ONCE)
    assert made.read("s", None) == ([[0]], 1)
    positions = {"s": 3}
    made.saved("5", positions)
    positions["s"] = 9
    made.saved("6", positions)
    assert reader.confirmed == []
    made.complete("5")
    assert reader.confirmed == [3]
    made.complete("4")
    made.saved("7", {"s": 12})
    made.complete("7")
    made.complete("6")
    assert reader.confirmed == [3, 12], "those before a complete one never will be"


def test_positions_are_confirmed_before_delivery_without_checkpoints() -> None:
    reader, made = confirming(Config.ATMOST_ONCE)
    assert made.read("s", None) == ([[0], [1], [2]], 3)
    assert reader.confirmed == [1, 2, 3]
    assert made.read("s", 6) == ([[6]], 7)
    assert made.read("s", 7) is None
    assert made.read("s", 1, 4) == ([[1]], 2), "a range is not confirmed"
    assert reader.confirmed == [1, 2, 3, 7]
