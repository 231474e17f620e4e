"""Results that leave a reducer's process: none is lost, whatever dies; and the parts that see to it, by themselves."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from online_world import OnlineWorld, definition_of, importable

from heronry.streamlet import Builder, sequence, sliding, to_files, tumbling
from heronry.streamlet.online.pulses import NONE, Heart, Outbox, Pulse
from heronry.streamlet.online.stages import stages_of
from heronry.streamlet.program import Program
from heronry.streamlet.reference import run
from heronry.streamlet.results import finished, latest, read

RECORDS = st.lists(
    st.fixed_dictionaries({"t": st.integers(0, 200), "k": st.sampled_from("abc")}), min_size=6, max_size=60
)
DEATHS = st.lists(st.tuples(st.sampled_from([0.1, 0.4, 0.9, 2.1]), st.integers(0, 99)), max_size=5)


def same(record: Any) -> Any:
    return record


def survive(builder: Builder, folder: Path, seed: int, deaths: list[tuple[float, int]], sinks: list[str]) -> None:
    """Run the program to its end while tasks die; every open root times out now and then."""
    with importable(builder):
        world = OnlineWorld(definition_of(builder), folder, seed)
        tasks = world.plan.tasks()
        for pause, place in deaths:
            world.run_on(pause)
            world.kill(tasks[place % len(tasks)])
        for number in range(80):
            world.run_on(7)
            if world.is_final() and all(finished(folder / sink) for sink in sinks):
                break
            if number % 4 == 3:  # as late as the default timeout: what is only slow is not replayed
                world.expire()
        for sink in sinks:
            assert finished(folder / sink), f"{sink} has not come to its end"
        for bolt in (executor.task.component for executor in world.executors.values()):
            if hasattr(bolt, "results"):
                bolt.results.outbox.check()
        world.stop()


@settings(max_examples=8)
@given(RECORDS, st.integers(0, 1000), DEATHS, st.booleans())
def test_no_result_is_lost_on_its_way_to_another_process(
    records: list[dict[str, Any]], seed: int, deaths: list[tuple[float, int]], updates: bool
) -> None:
    """Counts into a chain with other tasks, and from there into files: running, final and windowed ones."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        builder = Builder("results", {"user.streamlet.folder": f"{folder}/state", "user.streamlet.idle.secs": 1})
        source = sequence(len(records), tuple(records).__getitem__, rate=60)
        keyed = builder.source(source, event_time="t", parallelism=2).key_by("k")
        totals = keyed.count_by_key(name="totals", updates=updates, parallelism=2)
        totals.map(same, name="one", parallelism=3).sink(to_files(folder / "totals"), name="t")
        counts = keyed.window(tumbling(20), allowed_lateness=20).count_by_key(name="counts", parallelism=2)
        counts.map(same, name="two", parallelism=1).sink(to_files(folder / "windows"), name="w")
        counts.late().map(same, name="three", parallelism=1).sink(to_files(folder / "late"), name="l")
        survive(builder, folder, seed, deaths, ["totals", "windows", "late"])
        truth = run(builder.build())
        totals_found: dict[Any, int] = {}
        for row in read(folder / "totals"):  # the chain has three tasks: running counts come in any order
            totals_found[row.key] = max(totals_found.get(row.key, 0), row.value)
        windows_found: dict[Any, int] = {}
        for row in read(folder / "windows"):  # one that was emitted may be emitted again
            windows_found[row.key, row.start] = max(windows_found.get((row.key, row.start), 0), row.value)
        for row in read(folder / "late"):
            windows_found[row.key, row.start] = windows_found.get((row.key, row.start), 0) + row.value
    expected = {row.key: row.value for row in truth["t"]}
    assert totals_found.keys() == expected.keys()
    assert all(totals_found[key] >= expected[key] for key in expected)
    windows = {(row.key, row.start): row.value for row in truth["w"]}
    assert windows_found.keys() == windows.keys()
    assert all(windows_found[place] >= windows[place] for place in windows)
    if not deaths:
        assert totals_found == expected
        assert windows_found == windows


@settings(max_examples=8)
@given(RECORDS, st.integers(0, 1000), DEATHS)
def test_no_result_is_lost_on_its_way_to_another_reducer(
    records: list[dict[str, Any]], seed: int, deaths: list[tuple[float, int]]
) -> None:
    """Windows into windows by way of a chain, final counts into sums: nothing is missing, and the end comes last."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        builder = Builder("rows", {"user.streamlet.folder": f"{folder}/state", "user.streamlet.idle.secs": 1})
        source = sequence(len(records), tuple(records).__getitem__, rate=60)
        keyed = builder.source(source, event_time="t", parallelism=2).key_by("k")
        finals = keyed.count_by_key(name="finals", updates=False, parallelism=2)
        sums = finals.key_by(lambda row: "all").sum_by_key("value", updates=False, name="sums", parallelism=2)
        sums.sink(to_files(folder / "sums"), name="s")
        counts = keyed.window(tumbling(20), allowed_lateness=200).count_by_key(name="counts", parallelism=2)
        moved = counts.map(same, name="moved", parallelism=3).window(sliding(40, 20), allowed_lateness=0)
        more = moved.key_by("key").sum_by_key("value", name="more", parallelism=2)
        more.sink(to_files(folder / "more"), name="m")
        more.late().sink(to_files(folder / "late"), name="l")
        survive(builder, folder, seed, deaths, ["sums", "more", "late"])
        truth = run(builder.build())
        (total,) = latest(read(folder / "sums"))
        found: dict[Any, int] = {}
        for row in read(folder / "more"):
            found[row.key, row.start] = max(found.get((row.key, row.start), 0), row.value)
        for row in read(folder / "late"):
            found[row.key, row.start] = found.get((row.key, row.start), 0) + row.value
    assert total.value >= len(records)
    expected = {(row.key, row.start): row.value for row in truth["m"]}
    assert found.keys() == expected.keys()
    assert all(found[place] >= expected[place] for place in expected)
    if not deaths:
        assert total.value == len(records)
        assert found == expected


def program_of(*, leaves: bool) -> Program:
    builder = Builder("pulses")
    counts = builder.source(sequence(9), name="s").map(same, name="m", parallelism=2).key_by().count_by_key(name="c")
    counts.map(same, name="behind", parallelism=3 if leaves else None).log(name="log")
    return builder.build()


def test_pulses_go_only_where_results_leave_a_process() -> None:
    assert stages_of(program_of(leaves=False)).pulse_edges() == set()
    stages = stages_of(program_of(leaves=True))
    assert stages.pulse_edges() == {("s", "m"), ("m", "c")}
    assert stages.pulse_source("c") == "s"


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 5)),
        st.tuples(st.sampled_from(["flush", "beat", "deliver", "fail", "restart", "unsent"]), st.integers(0, 3)),
    ),
    max_size=80,
)


@given(EVENTS)
def test_a_result_is_forgotten_only_when_its_own_pulse_is_complete(events: list[tuple[str, int]]) -> None:
    """Pulses are delivered late, twice or never, complete in any order or fail; the model knows what has arrived."""
    heart, outbox = Heart("s", 10), Outbox()
    on_way: list[Pulse] = []
    held: Pulse | None = None
    version = 0
    newest: dict[int, int] = {}
    carried: dict[tuple[int, int], dict[Any, Any]] = {}  # by pulse: what was anchored to it
    arrived: dict[int, int] = {}
    for what, number in events:
        if what == "put":
            version += 1
            newest[number] = version
            outbox.put(number, version)
        elif what in ("flush", "unsent") and held is not None:
            taken = outbox.take()
            if what == "flush":
                outbox.sent(taken)
                carried[held.generation, held.number].update({name: h.value for name, h in taken.items()})
            else:
                outbox.again(taken)
        elif what == "beat":
            on_way.append(heart.beat())
        elif what == "deliver" and on_way:
            pulse = on_way[min(number, len(on_way) - 1)]
            if outbox.accepts(pulse, held is not None):
                for name, gone in outbox.on_pulse(pulse).items():
                    assert arrived.get(name, 0) >= gone.value, "forgotten before it arrived"
                held = pulse
                carried.setdefault((pulse.generation, pulse.number), {})
        elif what == "fail":
            heart.failed(heart.generation, 0)
        elif what == "restart":
            heart = Heart("s", heart.generation + 100)
        for place, values in list(carried.items()):
            if held is not None and place != (held.generation, held.number):  # it was acked when the next one came
                for name, value in values.items():
                    arrived[name] = max(arrived.get(name, 0), value)
                heart.acked(*place)
                del carried[place]
        heart.check()
        outbox.check()
        kept = outbox.held()
        for name, last in newest.items():
            assert kept.get(name) == last or arrived.get(name, 0) >= last, "the newest result is lost"


def test_a_pulse_that_failed_begins_a_new_generation_and_everything_unconfirmed_comes_again() -> None:
    heart, outbox = Heart("s", 1), Outbox()
    first = heart.beat()
    assert first == Pulse("s", 1, 0, NONE)
    assert outbox.on_pulse(first) == {}
    outbox.put("a", 1)
    outbox.sent(outbox.take())
    second = heart.beat()
    outbox.on_pulse(second)
    outbox.put("b", 2)
    outbox.sent(outbox.take())
    heart.acked(1, 1)
    assert heart.beat().confirmed == NONE, "the first is still open"
    heart.acked(1, 0)
    assert heart.beat().confirmed == 1
    heart.failed(1, 7)
    heart.failed(1, 9)  # of a generation that is over
    fresh = heart.beat()
    assert fresh == Pulse("s", 7, 0, NONE)
    assert outbox.on_pulse(fresh) == {}
    assert {name: (h.value, h.tries) for name, h in outbox.take().items()} == {"a": (1, 1), "b": (2, 1)}
