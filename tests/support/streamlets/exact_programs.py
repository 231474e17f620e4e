"""Streamlet programs under kills and rescaling, compared with the reference engine."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from heronry.pipeline.views import open_view
from heronry.streamlet import (
    Builder,
    Context,
    Monoid,
    Process,
    collect,
    sequence,
    session,
    sliding,
    to_files,
    tumbling,
    view,
)
from heronry.streamlet.monoid import count
from heronry.streamlet.reference import run
from heronry.streamlet.results import finished, latest, read
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.online_engine import OnlineEngine, definition_of, importable, letters_in

Event = tuple[float, str, int, int]  # seconds, kill or rescale, target, number of tasks
KINDS = ("kill", "kill", "rescale")


@dataclass(frozen=True)
class Trial:
    """Input of a program, and its faults."""

    records: Sequence[Mapping[str, Any]]
    seed: int
    events: Sequence[Event]


def random_trial(seed: int) -> Trial:
    """Return the trial of this seed: 20 to 59 records, and two to six faults."""
    draw = random.Random(seed)
    records = [{"t": draw.randrange(200), "k": draw.choice("abc")} for _ in range(draw.randrange(20, 60))]
    records.sort(key=lambda record: record["t"] + draw.randrange(80))
    events = [
        (draw.choice([0.3, 0.9, 2.2, 2.6]), draw.choice(KINDS), draw.randrange(100), draw.randrange(1, 4))
        for _ in range(draw.randrange(2, 7))
    ]
    return Trial(records, seed, events)


def survive(builder: Builder, folder: Path, trial: Trial) -> OnlineEngine:
    """Run the program to its end while tasks die and their number changes."""
    with importable(builder):
        world = OnlineEngine(definition_of(builder), folder, trial.seed)
        for pause, kind, place, tasks in trial.events:
            world.run_on(pause)
            if kind == "kill":
                world.kill(world.plan.tasks()[place % len(world.plan.tasks())])
            else:
                components = world.plan.topology.components
                world.rescale({components[place % len(components)].name: tasks})
        world.until_final()
        for executor in world.executors.values():
            table = getattr(executor.task.component, "_state", None)
            if table is not None:
                table.check()
        world.stop()
    hidden = [path for path in folder.rglob(".*") if path.name != "."]
    marks = [path for path in hidden if "-done-" in path.name]
    assert hidden == marks, "something was left prepared"
    assert not [left for mark in marks for left in mark.iterdir()]
    return world


def source(builder: Builder, trial: Trial, rate: float = 30) -> Any:
    """Return the records at a rate slow enough that faults occur between them."""
    records = tuple(trial.records)
    return builder.source(sequence(len(records), records.__getitem__, rate=rate), event_time="t", parallelism=2)


def same(record: Any) -> Any:
    return record


def once(rows: Sequence[Any]) -> dict[tuple[Any, int], Any]:
    """Return the results by key and window, after checking that each occurs once."""
    found = {(row.key, row.start): row.value for row in rows}
    assert len(found) == len(rows), "a window has two results"
    return found


def counted_windows(trial: Trial) -> None:
    """Check results within the reducer's process, windows that close continually, and late records."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        builder = Builder("windows", {"user.streamlet.folder": f"{folder}/own", "user.streamlet.idle.secs": 1})
        keyed = source(builder, trial).map(same, parallelism=2).key_by("k").window(tumbling(20), allowed_lateness=20)
        counts = keyed.count_by_key(name="counts", parallelism=2)
        counts.sink(to_files(folder / "out"), name="out")
        counts.late().sink(to_files(folder / "late"), name="late")
        survive(builder, folder, trial)
        assert finished(folder / "out")
        found = Counter(once(read(folder / "out")))
        for row in read(folder / "late"):
            found[row.key, row.start] += row.value
        truth = once(run(builder.build())["out"])
    assert found == truth


def results_elsewhere(trial: Trial) -> None:
    """Check counts that pass through a chain in other tasks to files: running, final and windowed ones."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        builder = Builder("results", {"user.streamlet.folder": f"{folder}/own", "user.streamlet.idle.secs": 1})
        keyed = source(builder, trial).key_by("k")
        running = keyed.count_by_key(name="running", parallelism=2)
        running.sink(to_files(folder / "running"), name="r")
        totals = keyed.count_by_key(name="totals", updates=False, parallelism=2)
        totals.map(same, name="one", parallelism=3).sink(to_files(folder / "totals"), name="t")
        counts = keyed.window(tumbling(20), allowed_lateness=20).count_by_key(name="counts", parallelism=2)
        counts.map(same, name="two", parallelism=1).sink(to_files(folder / "windows"), name="w")
        counts.late().map(same, name="three", parallelism=1).sink(to_files(folder / "late"), name="l")
        survive(builder, folder, trial)
        truth = run(builder.build())
        assert difference(latest(read(folder / "running")), truth["r"]) == ""
        assert difference(read(folder / "totals"), truth["t"]) == ""
        found = Counter(once(read(folder / "windows")))
        for row in read(folder / "late"):
            found[row.key, row.start] += row.value
    assert found == once(truth["w"])


def reducers_in_a_row(trial: Trial) -> None:
    """Check windows of windows through a chain, and sums of final counts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        builder = Builder("rows", {"user.streamlet.folder": f"{folder}/own", "user.streamlet.idle.secs": 1})
        keyed = source(builder, trial).key_by("k")
        finals = keyed.count_by_key(name="finals", updates=False, parallelism=2)
        sums = finals.key_by(lambda row: "all").sum_by_key("value", updates=False, name="sums", parallelism=2)
        sums.sink(to_files(folder / "sums"), name="s")
        counts = keyed.window(tumbling(20), allowed_lateness=300).count_by_key(name="counts", parallelism=2)
        moved = counts.map(same, name="moved", parallelism=3).window(sliding(40, 20), allowed_lateness=0)
        more = moved.key_by("key").sum_by_key("value", name="more", parallelism=2)
        more.sink(to_files(folder / "more"), name="m")
        more.late().sink(to_files(folder / "late"), name="l")
        survive(builder, folder, trial)
        truth = run(builder.build())
        assert difference(read(folder / "sums"), truth["s"]) == ""
        found = Counter(once(read(folder / "more")))
        for row in read(folder / "late"):
            found[row.key, row.start] += row.value
    assert found == once(truth["m"])


def sessions(trial: Trial) -> None:
    """Check merging sessions with late records, and sessions of sessions."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        builder = Builder("sessions", {"user.streamlet.folder": f"{folder}/own", "user.streamlet.idle.secs": 1})
        keyed = source(builder, trial, rate=10).key_by("k")  # over several checkpoints
        counts = keyed.window(session(3), allowed_lateness=300).count_by_key(name="counts", parallelism=2)
        counts.sink(to_files(folder / "counts"), name="c")
        again = counts.window(session(9)).key_by("key").sum_by_key("value", name="again", parallelism=2)
        again.sink(to_files(folder / "again"), name="a")
        counts.late().sink(to_files(folder / "late"), name="l")
        survive(builder, folder, trial)
        truth = run(builder.build())
        assert read(folder / "late") == []
        assert difference(read(folder / "counts"), truth["c"]) == ""
        assert difference(read(folder / "again"), truth["a"]) == ""


class Visits(Process):
    """Count of a key's visits, emitted forty seconds after its last record, with ticks in between."""

    def on_record(self, context: Context, record: Any) -> None:
        context.state = (context.state or 0) + 1
        context.set_timer(context.time_ms + 40_000, "end")
        if context.state == 1:
            context.set_timer(context.time_ms + 15_000, "tick")

    def on_timer(self, context: Context, name: str) -> None:
        context.emit({"key": context.key, "at": context.time_ms, "what": name, "seen": context.state})
        if name == "end":
            context.state = None
            context.cancel_timer("tick")
        else:
            context.set_timer(context.time_ms + 15_000, "tick")


def stories(trial: Trial) -> None:
    """Check state and timers by key, and windows of what they emit."""
    trial = replace(trial, records=sorted(trial.records, key=itemgetter("t")))  # so that most is emitted before the end
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        builder = Builder("stories", {"user.streamlet.folder": f"{folder}/own", "user.streamlet.idle.secs": 1})
        keyed = source(builder, trial, rate=4).key_by("k")  # over several checkpoints
        told = keyed.process(Visits, allowed_lateness=5, name="told", parallelism=2)
        told.sink(to_files(folder / "told"), name="t")
        counts = told.key_by("key").window(tumbling(20)).count_by_key(name="counts", parallelism=1)
        counts.sink(to_files(folder / "counts"), name="c")
        told.late().sink(to_files(folder / "late"), name="l")
        survive(builder, folder, trial)
        truth = run(builder.build())
        assert read(folder / "late") == []
        assert difference(read(folder / "told"), truth["t"]) == ""
        assert difference(read(folder / "counts"), truth["c"]) == ""


def joins(trial: Trial) -> None:
    """Check pairs of the even and of the odd seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        builder = Builder("joins", {"user.streamlet.folder": f"{folder}/own", "user.streamlet.idle.secs": 1})
        even, odd = source(builder, trial, rate=10).branch(lambda record: record["t"] % 2 == 0, parallelism=2)
        keyed = even.key_by("k").window(tumbling(20), allowed_lateness=300)
        pairs = keyed.join(odd.map(same).key_by("k"), "outer", name="join", parallelism=2)
        pairs.sink(to_files(folder / "out"), name="out")
        survive(builder, folder, trial)
        assert difference(read(folder / "out"), run(builder.build())["out"]) == ""


def views_of(trial: Trial, keys: int = 500_000, monoid: Monoid | None = None) -> None:
    """Check a view of buckets of limited size beside running totals, and a view of windows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = {"user.streamlet.folder": f"{folder}/own", "user.streamlet.view.keys": keys}
        builder = Builder("views", {**config, "user.streamlet.idle.secs": 1})
        timed = source(builder, trial, rate=10)  # over several checkpoints
        counts = timed.reduce_by_key(monoid or count(), key="k", value="t", name="counts", parallelism=2)
        counts.sink(view("buckets", folder / "buckets", bucket=10), name="b")
        counts.sink(collect(), name="totals")
        windows = timed.key_by("k").window(tumbling(20), allowed_lateness=300).count_by_key(name="windows")
        windows.sink(view("windows", folder / "windows"), name="v")
        survive(builder, folder, trial)
        buckets = {(a.key, a.start): a.value for a in open_view(folder / "buckets").buckets()}
        shown = {(a.key, a.start): a.value for a in open_view(folder / "windows").buckets()}
        totals = latest(read(folder / "own" / "collect" / "totals"))
        truth = run(builder.build())["totals"]
    assert buckets == Counter((r["k"], r["t"] // 10 * 10_000) for r in trial.records)
    assert shown == Counter((r["k"], r["t"] // 20 * 20_000) for r in trial.records)
    assert difference(totals, truth) == ""


def few_keys(trial: Trial) -> None:
    """Check buckets that are settled and reopened continually."""
    views_of(trial, keys=2)


def bad_records(trial: Trial) -> None:
    """Check that failing records become dead letters once, and all others are processed once."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        builder = Builder("bad", {"user.streamlet.folder": f"{folder}/own"})

        def picky(record: dict[str, Any]) -> dict[str, Any]:
            if record["k"] == "b":
                raise ValueError("no b")
            return record

        source(builder, trial).map(picky, parallelism=2).sink(to_files(folder / "out"), name="out", parallelism=2)
        survive(builder, folder, trial)
        good = read(folder / "out")
        letters = letters_in(folder)
    assert difference(good, [r for r in trial.records if r["k"] != "b"]) == ""
    assert len(letters) == sum(r["k"] == "b" for r in trial.records)


PROGRAMS: dict[str, Callable[[Trial], None]] = {
    "windows": counted_windows,
    "results": results_elsewhere,
    "rows": reducers_in_a_row,
    "sessions": sessions,
    "stories": stories,
    "joins": joins,
    "views": views_of,
    "few keys": few_keys,
    "bad": bad_records,
}
