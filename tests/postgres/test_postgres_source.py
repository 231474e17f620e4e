"""Rows of a real table as a source: each once, in order, from any position; equal times, ranges, invalid tables."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from heron_instance.core.state.task_state import SplitPositions
from heronry.connect.postgres_source import SqlRows
from heronry.connect.settings import BadConfig, ConnectError
from heronry.testing import Recorder
from tests.support.connectors import TaskPlace
from tests.support.servers.postgres import PostgresServer

_numbers = itertools.count(1)


@pytest.fixture
def table(server: PostgresServer) -> str:
    name = f"events_{next(_numbers)}"
    server.ask(f"CREATE TABLE {name} (id bigint PRIMARY KEY, at timestamptz, name text)")
    return name


def add(server: PostgresServer, table: str, first: int, last: int) -> None:
    """Add rows, ten per time."""
    server.ask(
        f"INSERT INTO {table} SELECT n, timestamptz '2026-01-01Z' + (n / 10) * interval '1.000001 s', 'n' || n "
        f"FROM generate_series({first}, {last}) n"
    )


class Reader:
    """Source that owns some splits, starting from positions."""

    def __init__(
        self, server: PostgresServer, table: str, positions: Any = (), task: int = 1, tasks: tuple[int, ...] = (1,),
        fields: tuple[str, ...] = ("id", "name"), **more: Any,
    ) -> None:  # fmt: skip
        self.spout = SqlRows()
        self._recorder = Recorder.attach(self.spout)
        self.spout.keyed = SplitPositions(task, tasks, self.spout.splits)
        self.spout.keyed.load(positions)
        config = server.config(**{"table": table, "column": "id", "poll.secs": 0.001, "rows": 7, **more})
        self.spout.initialize(config, TaskPlace("rows", task, tasks, rows=fields))

    def read(self, calls: int = 100) -> list[tuple[Any, ...]]:
        for _ in range(calls):
            self.spout.next_tuple()
        return self._recorder.values()

    def taken(self) -> list[Any]:
        self.spout.close()
        return self.spout.keyed.taken()


def test_each_row_comes_once_in_order_across_checkpoints(server: PostgresServer, table: str) -> None:
    add(server, table, 0, 99)
    first = Reader(server, table)
    some = first.read(3)
    positions = first.taken()
    assert (some, positions) == ([(n, f"n{n}") for n in range(21)], [("all", "20")])
    second = Reader(server, table, positions)
    second.read()
    add(server, table, 100, 120)
    while len(second.read(1)) < 100:
        pass  # the test's own limit ends it
    assert some + second.read() == [(n, f"n{n}") for n in range(121)]
    second.taken()


def test_rows_with_equal_times_are_read_together_and_none_is_lost(server: PostgresServer, table: str) -> None:
    add(server, table, 0, 99)
    found: list[tuple[Any, ...]] = []
    positions: list[Any] = []
    for _ in range(12):
        reader = Reader(server, table, positions, column="at", fields=("id",))
        found += reader.read(1)
        positions = reader.taken()
    assert sorted(found) == [(n,) for n in range(100)]


def test_ranges_are_read_by_different_tasks(server: PostgresServer, table: str) -> None:
    add(server, table, 0, 99)
    readers = [Reader(server, table, task=task, tasks=(1, 2), bounds=["30", "60"]) for task in (1, 2)]
    read = [[row[0] for row in reader.read()] for reader in readers]
    assert sorted(read[0]) == [*range(31), *range(61, 100)]
    assert sorted(read[1]) == [*range(31, 61)]
    assert [sorted(reader.taken()) for reader in readers] == [[("above 60", "99"), ("to 30", "30")], [("to 60", "60")]]


def test_unreadable_tables_are_reported(server: PostgresServer, table: str) -> None:
    with pytest.raises(BadConfig, match=r"has no column 'nr', which config 'user.postgres.column' names"):
        Reader(server, table, column="nr")
    with pytest.raises(ConnectError, match=r"reading table events_.*column t.colour does not exist"):
        Reader(server, table, fields=("id", "colour"))
    with pytest.raises(ConnectError, match=r'invalid input syntax for type bigint: "many"'):
        Reader(server, table, bounds=["many"])
    reader = Reader(server, table)
    server.kill()
    with pytest.raises(ConnectError, match=r"was lost while reading table"):
        reader.read(1)
    server.start()
    reader.taken()
