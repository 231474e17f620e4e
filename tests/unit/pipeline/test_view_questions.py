"""Pages, top and series of a merged view equal those computed from the whole view."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install heronry[archive]")

from heron_runtime.failures import UsageError
from heronry.pipeline import rows
from heronry.pipeline.questions import Range, cursor_of, page, series, top
from heronry.pipeline.rows import Row, RowGroup, Span, decode_key, key_bytes, row_of
from heronry.pipeline.views import ViewError, open_view
from heronry.streamlet.compare import close
from heronry.streamlet.monoid import Monoid, count, distinct, max_, mean, sum_, top_k
from tests.support.view_files import BUCKET, Event, read_at_once, write_batch, write_online, write_rows

KEYS = ["", "a", "a\0", "a\0b", "aa", "b", "é", "𝄞"]
TIMES = st.integers(-40, 90)
EVENTS = st.lists(st.tuples(st.sampled_from(KEYS), TIMES, st.integers(-5, 5)), min_size=10, max_size=60)
BOUND = st.one_of(st.none(), st.sampled_from([-40, -20, 0, 10, 35, 50, 90]))
MONOIDS = st.sampled_from([count(), sum_(), max_(), mean(), distinct(6)])
# Each example writes a dozen files, so shrinking takes too long.
ONE_FAULT = settings(report_multiple_bugs=False, phases=set(Phase) - {Phase.shrink})


@dataclass(frozen=True)
class Case:
    """A written view and a query on it."""

    events: list[Event]
    to_ms: int
    monoid: Monoid
    files: int
    group: int  # rows per row group
    is_sorted: bool
    asked: Range

    def write(self, folder: Path) -> None:
        events = sorted(self.events) if self.is_sorted else self.events
        write_batch(folder, events, self.monoid, self.to_ms, files=self.files, group=self.group)
        write_online(folder, events, self.monoid)

    def buckets(self, folder: Path, asked: Range) -> dict[tuple[bytes, int], Any]:
        """Return all buckets in the range."""

        def inside(key: bytes, start: int) -> bool:
            text = decode_key(key)
            return (
                (asked.first is None or text.encode() >= asked.first.encode())
                and (asked.last is None or text.encode() <= asked.last.encode())
                and (asked.from_ms is None or start >= asked.from_ms)
                and (asked.to_ms is None or start + BUCKET <= asked.to_ms)
            )

        return {place: acc for place, acc in read_at_once(folder, self.monoid).items() if inside(*place)}

    def totals(self, folder: Path, asked: Range) -> list[tuple[str, Any]]:
        """Return the totals of the range by key."""
        accs: dict[bytes, Any] = {}
        for (key, _), acc in sorted(self.buckets(folder, asked).items(), key=lambda item: item[0]):
            accs[key] = self.monoid.add(accs[key], acc) if key in accs else acc
        return [(decode_key(key), self.monoid.finish(acc)) for key, acc in accs.items()]


def _range(first: str | None, last: str | None, from_ms: int | None, to_ms: int | None) -> Range:
    first, last = sorted((first, last), key=str.encode) if first is not None and last is not None else (first, last)
    from_ms, to_ms = sorted((from_ms, to_ms)) if from_ms is not None and to_ms is not None else (from_ms, to_ms)
    return Range(first, last, from_ms, to_ms)


TEXT = st.one_of(st.none(), st.sampled_from([*KEYS, "a\x01", "zz"]))
RANGES = st.builds(_range, TEXT, TEXT, BOUND, BOUND)
CASES = st.builds(
    Case, EVENTS, st.integers(-50, 100), MONOIDS, st.integers(1, 3), st.integers(1, 5), st.booleans(), RANGES
)


@ONE_FAULT
@given(CASES, st.integers(1, 4))
def test_pages_cover_the_whole_view(case: Case, limit: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        case.write(Path(name))
        expected = case.totals(Path(name), case.asked)
        found: list[tuple[str, Any]] = []
        cursor, left = None, None
        while True:
            each = page(open_view(Path(name)), limit, case.asked, cursor)
            assert len(each.totals) <= limit
            assert each.at_most >= len(expected) - len(found)
            assert left is None or each.at_most <= left
            found, left, cursor = found + [tuple(total) for total in each.totals], each.at_most, each.next
            assert len(found) <= len(expected), "else a page that comes again and again would be asked for without end"
            if cursor is None:
                break
            assert len(each.totals) == limit
        assert [key for key, _ in found] == [key for key, _ in expected]
        assert close(found, expected)


@ONE_FAULT
@given(CASES, st.integers(1, 9), st.booleans())
def test_top_equals_that_of_the_whole_view(case: Case, n: int, smallest: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        case.write(Path(name))
        whole = [total for total in case.totals(Path(name), case.asked) if total[1] is not None]
        expected = sorted(whole, key=lambda total: total[1], reverse=not smallest)[:n]
        found = top(open_view(Path(name)), n, case.asked, smallest=smallest)
        assert [tuple(total) for total in found] == expected


@ONE_FAULT
@given(CASES, st.sampled_from(KEYS), st.integers(1, 4))
def test_series_cover_the_buckets_of_a_key(case: Case, key: str, limit: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        case.write(Path(name))
        asked = Range(key, key, case.asked.from_ms, case.asked.to_ms)
        expected = [(start, acc) for (_, start), acc in sorted(case.buckets(Path(name), asked).items())]
        found: list[tuple[int, Any]] = []
        from_ms = asked.from_ms
        while True:
            each = series(open_view(Path(name)), key, limit, from_ms, asked.to_ms)
            assert len(each.buckets) <= limit
            assert all(bucket.owner == ("batch" if bucket.end <= case.to_ms else "online") for bucket in each.buckets)
            found += [(bucket.start, bucket.value) for bucket in each.buckets]
            assert len(found) <= len(expected)
            from_ms = each.next_ms
            if from_ms is None:
                break
        assert close(found, [(start, case.monoid.finish(acc)) for start, acc in expected])


@ONE_FAULT
@given(EVENTS, EVENTS, st.integers(1, 3), st.integers(-50, 100))
def test_pages_of_a_changing_view_contain_each_stable_key_once(
    events: list[Event], more: list[Event], limit: int, to_ms: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, seen, cursor = Path(name), [], None
        write_batch(folder, events, count(), -50)
        write_online(folder, events, count())
        while True:
            each = page(open_view(folder), limit, cursor=cursor)
            seen += [total.key for total in each.totals]
            assert len(seen) == len(set(seen)), "no key comes twice"
            write_online(folder, [*events, *more], count())
            write_batch(folder, [*events, *more], count(), to_ms)  # the owner changes, and keys are added
            cursor = each.next
            if cursor is None:
                break
        if len(seen) > limit:  # otherwise no page followed the change
            assert {key for key, *_ in events} <= set(seen)


def test_invalid_query_is_rejected(tmp_path: Path) -> None:
    write_batch(tmp_path, [("a", 1, 1)], count(), 10)
    view = open_view(tmp_path)
    for ask, why in (
        (lambda: page(view, 0), "limit: 0"),
        (lambda: top(view, -1), "n: -1"),
        (lambda: page(view, 1, Range("b", "a")), "last: is before first"),
        (lambda: page(view, 1, Range(from_ms=5, to_ms=1)), "to: is before from"),
        (lambda: series(view, "a", 1, 5, 1), "to: is before from"),
        (lambda: top(view, 1, most_rows=0), "1 rows would have to be read, more than 0"),
        *((lambda text=text: page(view, 1, cursor=text), "cursor: not a cursor") for text in ("x", "!", "", "c2g=x")),  # type: ignore[misc]
    ):
        with pytest.raises(UsageError, match=why):
            ask()


def test_cursor_supports_any_key(tmp_path: Path) -> None:
    keys = [None, 1.5, 10**30, ("x", (2, "y")), b"\xff", "text", "\udc80", float("nan"), -3]
    rows = [row_of(key, 0, BUCKET, 1, count()) for key in keys]
    write_batch(tmp_path, [], count(), BUCKET)
    write_rows(next((tmp_path / "batch").iterdir()) / "rows" / "part-0.parquet", rows)
    view, cursor, found = open_view(tmp_path), None, []
    for number in range(len(keys)):
        each = page(view, 1, cursor=cursor)
        found += [key_bytes(total.key) for total in each.totals]
        cursor = each.next
        assert (cursor is None) == (number == len(keys) - 1)
    assert found == sorted(row.key for row in rows)
    assert [total.key for total in page(view, 9, Range(first="")).totals] == ["text", "\udc80"]
    assert cursor_of(b"") == ""


def test_nan_is_the_greatest_and_none_is_ignored(tmp_path: Path) -> None:
    write_batch(tmp_path, [], max_(), BUCKET)
    values = {"a": None, "b": float("nan"), "c": 2, "d": 2.0, "e": -1}
    rows = [row_of(key, 0, BUCKET, value, max_()) for key, value in values.items()]
    write_rows(next((tmp_path / "batch").iterdir()) / "rows" / "part-0.parquet", rows)
    assert [total.key for total in top(open_view(tmp_path), 9)] == ["b", "c", "d", "e"]
    assert [total.key for total in top(open_view(tmp_path), 2, smallest=True)] == ["e", "c"]


@pytest.mark.parametrize(("monoid", "values"), [(top_k(2), [[1], [2]]), (max_(), [1, "x"])], ids=["lists", "mixed"])
def test_values_without_an_order_have_no_top(tmp_path: Path, monoid: Monoid, values: list[Any]) -> None:
    write_batch(tmp_path, [], monoid, BUCKET)
    rows = [row_of(key, 0, BUCKET, monoid.unpack(acc), monoid) for key, acc in zip("ab", values, strict=True)]
    write_rows(next((tmp_path / "batch").iterdir()) / "rows" / "part-0.parquet", rows)
    with pytest.raises(UsageError, match="the values of view v have no order"):
        top(open_view(tmp_path), 2)


def test_unreadable_parquet_file_is_named(tmp_path: Path) -> None:
    write_batch(tmp_path, [("a", 1, 1)], count(), 10)
    (file,) = tmp_path.rglob("*.parquet")
    file.write_bytes(b"PAR1 no more PAR1")
    with pytest.raises(ViewError, match="cannot be read"):
        page(open_view(tmp_path), 1)


def test_key_query_reads_only_its_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_batch(tmp_path, [(f"{n:03d}", 1, 1) for n in range(100)], count(), 10, group=10)
    opened, read = [], rows._read

    def noted(group: RowGroup, span: Span) -> Iterator[Row]:
        opened.append(group.number)
        return read(group, span)

    monkeypatch.setattr(rows, "_read", noted)
    view = open_view(tmp_path)
    assert view.totals("042") == {"042": 1}
    assert [total.key for total in page(view, 3, Range(first="055")).totals] == ["055", "056", "057"]
    assert opened == [4, 5]
