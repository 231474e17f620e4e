"""Merged views: one owner per bucket, invisible partial results, and correction by the next batch."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install heronry[archive]")

from heron_runtime.model.keys import encode
from heronry.api.state import Checkpoint
from heronry.pipeline import NoSuchView, read_view
from heronry.pipeline.registry import Registered, all_registered, register
from heronry.pipeline.rows import decode_key, key_bytes, read_online, row_of
from heronry.pipeline.views import Description, ViewError, describe_view, next_version, open_view, prune
from heronry.streamlet.compare import close
from heronry.streamlet.endpoints import ViewSink
from heronry.streamlet.extract import WHOLE
from heronry.streamlet.monoid import Monoid, count, distinct, max_, mean, min_, sum_, top_k
from heronry.streamlet.online.published import ViewBucketFiles
from heronry.streamlet.online.state import ReducerEntry
from heronry.streamlet.online.writers import TaskOf
from heronry.streamlet.program import ReduceStep, Ref
from tests.support.view_files import BUCKET, Event, grouped, write_batch, write_online, write_rows

EVENTS = st.lists(st.tuples(st.sampled_from(["a", "bb", "c", "dddd"]), st.integers(-40, 90), st.integers(-5, 5)))


@given(events=EVENTS, to_ms=st.integers(-50, 100), monoid=st.sampled_from([count(), mean(), top_k(2), distinct(6)]))
def test_batch_before_t_and_online_after_it_give_the_true_result(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event], to_ms: int, monoid: Monoid
) -> None:
    folder = tmp_path_factory.mktemp("view")
    write_batch(folder, events, monoid, to_ms)
    write_online(folder, events, monoid)
    view = open_view(folder)
    expected = {place: monoid.finish(acc) for place, acc in grouped(events, monoid).items()}
    found = view.buckets()
    assert close({(b.key, b.start): b.value for b in found}, expected)
    assert all(b.owner == ("batch" if b.end <= to_ms else "online") for b in found)
    by_key: dict[str, list[int]] = {}
    for key, _, value in events:
        by_key.setdefault(key, []).append(value)
    assert close(view.totals(), {k: monoid.finish(monoid.folded(v)) for k, v in by_key.items()})
    for key in by_key:
        assert close(view.totals(key, from_ms=0, to_ms=50).get(key), _total(events, key, monoid))


def show(folder: Path, monoid: Monoid, bucket: int, entries: list[ReducerEntry]) -> None:
    """Publish entries as an online task does with a checkpoint."""
    files = ViewBucketFiles(ViewSink("v", str(folder), BUCKET), reduced(monoid), TaskOf(0, 1, 1, folder))
    files.write(bucket, entries)
    files.prepare(Checkpoint(1, 1, "1-1-1-a"), False)
    files.commit("1-1-1-a")


def _total(events: list[Event], key: str, monoid: Monoid) -> Any:
    these = [value for k, time, value in events if k == key and 0 <= time < 50]
    return monoid.finish(monoid.folded(these)) if these else None


def test_next_batch_corrects_a_wrong_online_result(tmp_path: Path) -> None:
    events = [("a", time, 1) for time in range(40)]
    write_batch(tmp_path, events, count(), 20)
    write_online(tmp_path, [*events, *events[20:]], count())  # all events after T arrived twice
    assert read_view(tmp_path).totals() == {"a": 60}
    write_batch(tmp_path, events, count(), 40)
    view = read_view(tmp_path)
    assert view.totals() == {"a": 40}
    assert {bucket.owner for bucket in view.buckets()} == {"batch"}


def test_reader_keeps_its_version_while_newer_ones_appear(tmp_path: Path) -> None:
    events = [("a", time, 1) for time in range(40)]
    write_online(tmp_path, events, count())
    write_batch(tmp_path, events, count(), 20)
    reader = open_view(tmp_path)
    write_batch(tmp_path, [*events, ("a", 5, 1)], count(), 30)
    prune(tmp_path)
    assert reader.totals() == {"a": 40}
    assert open_view(tmp_path).totals() == {"a": 41}
    assert sorted(int(entry.name) for entry in (tmp_path / "online").iterdir()) == [20, 30]
    write_batch(tmp_path, events, count(), 40)
    prune(tmp_path)
    assert sorted(entry.name for entry in (tmp_path / "batch").iterdir()) == ["000002", "000003"]


def test_batch_cannot_return_to_a_pruned_time(tmp_path: Path) -> None:
    events = [("a", time, 1) for time in range(60)]
    write_online(tmp_path, events, count())
    for to_ms in (20, 50, 30, 30):  # back from a mistaken 50: only 20 is pruned
        assert next_version(tmp_path, to_ms)
        write_batch(tmp_path, events, count(), to_ms)
        prune(tmp_path)
        assert open_view(tmp_path).totals() == {"a": 60}
    with pytest.raises(ViewError, match="cannot go back to 20 ms: batches up to 30 ms"):
        next_version(tmp_path, 20)


def test_partial_result_is_invisible(tmp_path: Path) -> None:
    events = [("a", time, 1) for time in range(40)]
    write_batch(tmp_path, events, count(), 20)
    half = tmp_path / "batch" / ".000002.host.1.tmp"
    write_rows(half / "rows" / "part-0.parquet", [row_of("a", 0, BUCKET, 1000, count())])
    half_online = tmp_path / "online" / "30" / ".0.part"
    half_online.parent.mkdir(parents=True)
    half_online.write_bytes(b"\x81")
    assert open_view(tmp_path).totals() == {"a": 20}
    assert next_version(tmp_path).name == "000002"


def test_online_layer_answers_alone_before_the_first_batch(tmp_path: Path) -> None:
    with pytest.raises(NoSuchView, match="neither a batch nor"):
        read_view(tmp_path)
    write_online(tmp_path, [("a", 5, 1), ("bb", 15, 1)], count())
    view = read_view(tmp_path)
    assert (view.to_ms, view.totals()) == (None, {"a": 1, "bb": 1})


def test_user_defined_monoid_needs_its_code(tmp_path: Path) -> None:
    own = Monoid("longest", str, lambda a, b: max(a, b, key=len), lift=lambda n: "x" * n)
    write_batch(tmp_path, [("a", 1, 2), ("a", 2, 3)], own, 10)
    with pytest.raises(ViewError, match="monoid="):
        read_view(tmp_path).totals()
    assert read_view(tmp_path, monoid=own).totals() == {"a": "xxx"}


KEYS = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(), st.dates(),
        st.datetimes(), st.datetimes(timezones=st.just(dt.UTC)), st.decimals(-99, 99, places=3),
    ),
    lambda inner: st.one_of(st.tuples(inner, inner), st.frozensets(inner, max_size=3)),
    max_leaves=4,
)  # fmt: skip


@given(KEYS)
def test_key_round_trips_through_its_encoding(key: Any) -> None:
    assert decode_key(encode(key)) == key


def reduced(monoid: Monoid) -> ReduceStep:
    return ReduceStep("r", Ref("s"), WHOLE, WHOLE, monoid)


@pytest.mark.parametrize(
    "key",
    ["a", 1, 1.5, None, True, ("a", 1), dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 3), Decimal("0.10"), b"x"],
)
def test_key_is_equal_in_both_layers(tmp_path: Path, key: Any) -> None:
    show(tmp_path, count(), 0, [ReducerEntry(0, key, 1)])
    (row,) = read_online(tmp_path / "online" / "0" / "0.msgpack").rows
    assert row.key == key_bytes(key)
    assert key_bytes(decode_key(row.key)) == row.key


@pytest.mark.parametrize("monoid", [sum_(), mean(), min_(), max_(), top_k(1)], ids=str)
def test_decimals_add_up_as_numbers_in_both_layers(tmp_path: Path, monoid: Monoid) -> None:
    early, late = [Decimal("9.5"), Decimal("10.25")], [Decimal("1.75"), Decimal("0.5")]
    describe_view(tmp_path, Description("v", "p", "s", BUCKET, monoid.builtin, monoid.parameters))
    accs = [monoid.folded(values) for values in (early, late)]
    work = tmp_path / "batch" / "000001"
    write_rows(work / "rows" / "part-0.parquet", [row_of("k", 0, BUCKET, accs[0], monoid)])
    (work / "_heronry.json").write_text(json.dumps({"to_ms": BUCKET}))
    show(tmp_path, monoid, BUCKET, [ReducerEntry(BUCKET, "k", accs[1])])
    assert close(read_view(tmp_path).totals()["k"], monoid.finish(monoid.folded(map(float, early + late))))


def test_registered_view_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERONRY_HOME", str(tmp_path))
    write_online(tmp_path / "view", [("a", 5, 1)], count())
    for name in ("clicks", "../clicks"):
        with pytest.raises(NoSuchView):
            read_view(name)
    register(Registered("clicks", str(tmp_path / "view"), "f.py", "p", ("x",), ("/in",), "archive"))
    assert Counter(read_view("clicks").totals()) == {"a": 1}
    assert [view.arguments for view in all_registered()] == [("x",)]
