"""Changes by a real slot: the law of replicas, what breaks it, and what a slot that cannot be read says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import changes_story as story
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from postgres_server import PostgresServer

from heronry.connect import pgoutput, postgres_slot
from heronry.connect.postgres_changes import ChangeReader
from heronry.connect.settings import ConnectError

Patch = pytest.MonkeyPatch
DEAR = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None)


@pytest.fixture(scope="module")
def ground(server: PostgresServer) -> Iterator[story.Ground]:
    """Shared by all stories."""
    with story.ground(server) as made:
        yield made


@DEAR
@given(told=story.stories)
def test_a_replica_is_the_table_after_each_transaction(ground: story.Ground, told: Any) -> None:
    story.check(ground, told)


def what_was_read_comes_again(patch: Patch) -> None:
    patch.setattr(postgres_slot, "PEEK", postgres_slot.PEEK.replace("AND lsn <= %(begin)s", "AND lsn < %(begin)s"))


def transactions_are_told_by_where_they_began(patch: Patch) -> None:
    patch.setattr(postgres_slot, "PEEK", postgres_slot.PEEK.replace("= %(commit)s AND", "<> %(commit)s AND"))


def tables_are_told_once(patch: Patch) -> None:
    patch.setattr(postgres_slot, "PEEK", postgres_slot.PEEK.replace("= %(relation)s", "= %(relation)s AND false"))


def a_piece_of_a_transaction_is_forgotten(patch: Patch) -> None:
    changes = ChangeReader._changes
    patch.setattr(ChangeReader, "_changes", lambda self, at, *rest: changes(self, at._replace(number=0), *rest))


def a_piece_stands_for_its_transaction(patch: Patch) -> None:
    some = ChangeReader._some

    def to_the_end(self: Any) -> Any:
        rows, reached = some(self)
        for _, reached in self._came:  # noqa: B007  # reason: the last one is wanted
            pass
        return rows, reached

    patch.setattr(ChangeReader, "_some", to_the_end)


def ends_are_not_heeded(patch: Patch) -> None:
    read = ChangeReader.read
    patch.setattr(ChangeReader, "read", lambda self, split, begin, end=None: read(self, split, begin))


def the_log_is_confirmed_to_its_end(patch: Patch) -> None:
    confirm = postgres_slot.Slot.confirm
    patch.setattr(postgres_slot.Slot, "confirm", lambda self, lsn: confirm(self, self.flushed_end()))


def keys_are_those_of_now(patch: Patch) -> None:
    update = pgoutput.Messages._update
    patch.setattr(pgoutput.Messages, "_update", lambda self, table, new, old: update(self, table, new, None))


def large_values_become_null(patch: Patch) -> None:
    update = pgoutput.Messages._update

    def updated(self: Any, table: Any, new: Any, old: Any) -> Any:
        change = update(self, table, new, old)
        return change._replace(new=change.new | dict.fromkeys(change.unchanged), unchanged=())

    patch.setattr(pgoutput.Messages, "_update", updated)


def tables_are_never_emptied(patch: Patch) -> None:
    take = pgoutput.Messages.take
    patch.setattr(pgoutput.Messages, "take", lambda self, data: take(self, data) if data[:1] != b"T" else [])


def the_end_of_the_log_is_what_was_read(patch: Patch) -> None:
    """A position moves to where the log is written, over what has not come yet."""
    read = ChangeReader.read

    def ahead(self: Any, split: str, begin: Any, end: Any = None) -> Any:
        found = read(self, split, begin, end)
        if found is None or end is not None:
            return found
        return found[0], (pgoutput.text_of(self._slot.flushed_end()), 0, self._slot.server)

    patch.setattr(ChangeReader, "read", ahead)


MUTATIONS: list[Callable[[Patch], None]] = [
    what_was_read_comes_again, transactions_are_told_by_where_they_began, tables_are_told_once,
    a_piece_of_a_transaction_is_forgotten, a_piece_stands_for_its_transaction, ends_are_not_heeded,
    the_log_is_confirmed_to_its_end, keys_are_those_of_now, large_values_become_null, tables_are_never_emptied,
    the_end_of_the_log_is_what_was_read,
]  # fmt: skip


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_the_law_catches(ground: story.Ground, mutation: Callable[[Patch], None]) -> None:
    @settings(DEAR, max_examples=100, phases=[Phase.generate], derandomize=True, report_multiple_bugs=False)
    @given(told=story.stories)
    def law(told: Any) -> None:
        story.check(ground, told)

    with Patch.context() as patch:
        mutation(patch)
        with pytest.raises((AssertionError, ConnectError, KeyError)):
            law()
