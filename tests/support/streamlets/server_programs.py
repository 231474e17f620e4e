"""One program over a server's source, run by the reference and the online engine.

``Seen`` holds the results of an engine by sink, ready to be compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heronry.streamlet import Builder, collect, sequence, to_files, tumbling
from heronry.streamlet.program import Program
from heronry.streamlet.reference import run
from heronry.streamlet.results import read
from heronry.streamlet.servers import ServerSource
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.online_engine import OnlineEngine, definition_of, importable

Seen = dict[str, list[Any]]


def program(source: Any, folder: Path | None, parallelism: int = 2) -> Builder:
    """Return a program over ``word`` and ``n``: plain records, counts by word, and counts by word and window.

    Records with n = -1 fail. Results are files, or collected.
    """

    def millis(record: dict[str, Any]) -> int:  # nested, so that workers of Spark get the functions by value
        return int(record["n"]) * 1000

    def refuse(record: dict[str, Any]) -> dict[str, Any]:
        return {**record, "rest": 1 // (int(record["n"]) + 1)}

    def into(name: str) -> Any:
        return collect() if folder is None else to_files(folder / name)

    builder = Builder("served", None if folder is None else {"user.streamlet.folder": str(folder)})
    records = builder.source(source, name="source", event_time=millis, unit="ms", parallelism=parallelism)
    passed = records.map(refuse, name="refuse")
    passed.sink(into("records"), name="records")
    passed.key_by("word").count_by_key(updates=False, name="counts").sink(into("sums"), name="sums")
    # A task that reads several splits in turn sees event time decrease.
    windows = passed.key_by("word").window(tumbling(7), allowed_lateness=1000).count_by_key(name="windows")
    windows.sink(into("tumbled"), name="tumbled")
    return builder


def in_reference(source: ServerSource, failed: list[dict[str, Any]] | None = None) -> Seen:
    """Return the results of the reference engine."""
    return run(program(source, None).build(), None, failed)


def world(builder: Builder, folder: Path, seed: int = 0) -> OnlineEngine:
    """Return the executors of the program; call it inside ``importable``."""
    return OnlineEngine(definition_of(builder), folder, seed)


def online(source: ServerSource, folder: Path, kills: int = 0, seed: int = 1) -> Seen:
    """Return the results of spouts and bolts on simulated time, some of which are killed."""
    builder = program(source, folder)
    with importable(builder):
        made = world(builder, folder, seed)
        for _ in range(kills):
            made.run_on(1.3)
            made.kill(made.random.choice(made.plan.tasks()))
        if kills:
            made.rescale({"source": 1})
        made.until_final()
        made.stop()
        return read_all(builder.build(), folder)


def read_all(found: Program, folder: Path) -> Seen:
    """Return the results of the program's sinks, read from their folders."""
    return {step.name: read(step.sink.path) for step in found.sinks()}


def differences(left: Seen, right: Seen) -> dict[str, str]:
    """Return the difference of each sink; empty if none. In files, named tuples are objects."""
    found = {name: difference(plain(left[name]), plain(right[name])) for name in left}
    return {name: text for name, text in found.items() if text}


def plain(records: list[Any]) -> list[Any]:
    """Return the records in the form of files."""
    return [record._asdict() if hasattr(record, "_asdict") else record for record in records]


def into_servers(records: Any, sums: Any, numbers: int = 300) -> Builder:
    """Return a program that writes numbers and words to ``records``, and counts by word to ``sums``."""

    def made(number: int) -> dict[str, Any]:
        return {"id": number, "word": f"wörd {number % 7}", "half": None if number % 5 else number / 2}

    builder = Builder("into")
    source = builder.source(sequence(numbers, made), name="source", parallelism=2)
    source.sink(records, name="records", parallelism=2)
    source.key_by("word").count_by_key(updates=False, name="counts").sink(sums, name="sums")
    return builder


def write_online(builder: Builder, folder: Path, kills: int, seed: int = 1) -> OnlineEngine:
    """Run to the end with bolts on simulated time, some of which are killed."""
    with importable(builder):
        made = world(builder, folder, seed)
        for number in range(kills):
            made.run_on(1.7)
            made.kill(made.random.choice(made.plan.tasks()))
            if number == kills // 2:
                made.rescale({"records": 1})
        made.until_final()
        made.stop()
        return made
