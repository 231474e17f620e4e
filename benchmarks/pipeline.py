"""Comparison of compiled and hand-written word counts on Spark on one machine (``make bench-pipeline``).

The programs are those of a user; hand-written mappings are in ``handwritten_spark``. The target: a program is within 15
% of the best hand-written mapping of its kind ("python": a Python function splits the words; "sql": every reducer is
plain, and Python handles no record). Each case runs several times in one warm session, in turns, so that other load
affects all of them alike; the best run counts. Counts are compared with those of plain Python.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import handwritten_spark as by_hand
from data_pipeline.core.plan import Output
from data_pipeline.core.planner import Choice, plan
from data_pipeline.core.render import to_json
from data_pipeline.shell.execute import Execution
from data_pipeline.shell.resolved_request import with_columns
from data_pipeline.shell.scan import Tables
from data_pipeline.shell.session import SessionOptions, own_session
from data_pipeline.shell.sinks import writing
from heronry.streamlet import Builder, collect, files
from heronry.streamlet.program import Program

TEXT = Path(__file__).resolve().parent.parent / "examples" / "data" / "northanger_abbey.txt"
BAR = 1.15
CORES = 2
PYTHON, SQL = "python", "sql"


def chain_program(path: Path) -> Program:
    """Return a program of flat_map, filter, map and count by key, in which Python splits the words."""
    builder = Builder("chain")
    words = builder.source(files(path, "text")).flat_map(by_hand.words_of).filter(by_hand.is_word).map(str.lower)
    words.key_by().count_by_key().sink(collect(), name="counts")
    return builder.build()


def plain_program(path: Path) -> Program:
    """Return a program over one word per row in Parquet, counted by a field: Spark alone computes it."""
    builder = Builder("plain")
    builder.source(files(path, "parquet"), name="words").count_by_key("word").sink(collect(), name="counts")
    return builder.build()


@contextmanager
def _planned(spark: Any, program: Program, **options: Any) -> Iterator[tuple[Execution, Output]]:
    """Yield a program as a job plans it, and its sink."""
    tables = Tables(spark)
    found = plan(program, with_columns(tables, program, Choice()))
    execution = Execution(spark, found, tables=tables, **options)
    try:
        yield execution, found.outputs[0]
    finally:
        execution.close()


def _through_files(write: Callable[[str], None], key: str, value: str) -> by_hand.Counts:
    """Return the counts that ``write`` puts into a folder as JSON lines."""
    with tempfile.TemporaryDirectory(prefix="heronry-bench-") as folder:
        write(f"file://{folder}/counts")
        lines = [line for part in Path(folder, "counts").glob("part-*") for line in part.read_text().splitlines()]
    return {record[key]: record[value] for record in map(json.loads, lines)}


def compiled(program: Program) -> Callable[[Any, str], by_hand.Counts]:
    """Return a function that runs a program as a job does, and returns its results."""

    def run(spark: Any, path: str) -> by_hand.Counts:
        with _planned(spark, program) as (execution, output):
            return {record.key: record.value for record in execution.records(output.step, pickle.loads)}

    return run


def written(program: Program) -> Callable[[Any, str], by_hand.Counts]:
    """Return a function that runs a program as ``heron submit spark`` does, into files."""

    def run(spark: Any, path: str) -> by_hand.Counts:
        with _planned(spark, program, collect=to_json) as (execution, output):
            return _through_files(lambda folder: writing(output, execution, folder)(), "key", "value")

    return run


def sql_into_files(spark: Any, path: str) -> by_hand.Counts:
    """Run the hand-written plain program into files."""
    return _through_files(spark.read.parquet(path).groupBy("word").count().write.json, "word", "count")


def python_into_files(spark: Any, path: str) -> by_hand.Counts:
    """Run the hand-written chain (``mapInArrow`` with a combine, SQL sum) into files."""
    return _through_files(by_hand.combined_and_summed(spark, path).write.json, "word", "n")


def sql_over_words(spark: Any, path: str) -> by_hand.Counts:
    """Run the hand-written plain program."""
    return {row["word"]: row["count"] for row in spark.read.parquet(path).groupBy("word").count().collect()}


def prepare(folder: Path, words: int) -> tuple[Path, Path, by_hand.Counts, int]:
    """Write the text and the table of its words; return both, the counts, and the number of words."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    once = TEXT.read_text()
    text = folder / "text.txt"
    text.write_text(once * max(1, words // len(once.split())))
    truth = by_hand.plain_python(str(text))
    table = folder / "words"
    table.mkdir()
    every = [w.lower() for w in text.read_text().split() if by_hand.is_word(w)]
    half = len(every) // CORES
    for number in range(CORES):
        part = every[number * half : (number + 1) * half if number < CORES - 1 else len(every)]
        pq.write_table(pa.table({"word": part}), table / f"part-{number}.parquet")
    return text, table, truth, len(every)


def measure(words: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each case, best run first within its kind."""
    with tempfile.TemporaryDirectory(prefix="heronry-bench-") as folder:
        text, table, truth, count = prepare(Path(folder), words)
        cases: list[tuple[str, str, bool, Callable[[Any, str], by_hand.Counts], str]] = [
            ("program: Python functions", PYTHON, True, compiled(chain_program(text)), str(text)),
            ("program: plain reducer", SQL, True, compiled(plain_program(table)), str(table)),
            ("by hand: groupBy over words", SQL, False, sql_over_words, str(table)),
            ("program: Python functions, into files", f"{PYTHON} files", True, written(chain_program(text)), str(text)),
            ("program: plain reducer, into files", f"{SQL} files", True, written(plain_program(table)), str(table)),
            ("by hand: combine, SQL sum, into files", f"{PYTHON} files", False, python_into_files, str(text)),
            ("by hand: groupBy over words, into files", f"{SQL} files", False, sql_into_files, str(table)),
        ]
        for name, (function, kind) in by_hand.MAPPINGS.items():
            cases.append((f"by hand: {name}", kind if kind == PYTHON else "text sql", False, function, str(text)))
        seconds: dict[str, list[float]] = {case[0]: [] for case in cases}
        with own_session(SessionOptions("bench", f"local[{CORES}]", {"spark.log.level": "ERROR"})) as spark:
            for turn in range(rounds + 1):
                for name, _, _, function, path in cases:
                    began = time.perf_counter()
                    found = function(spark, path)
                    if turn:  # the first round warms up
                        seconds[name].append(time.perf_counter() - began)
                    if Counter(found) != Counter(truth):
                        raise SystemExit(f"{name} counts wrongly")
        began = time.perf_counter()
        by_hand.plain_python(str(text))
        seconds["plain Python, one process"] = [time.perf_counter() - began]
        kinds = {name: (kind, ours) for name, kind, ours, _, _ in cases} | {"plain Python, one process": ("-", False)}
    return [
        {"case": name, "kind": kinds[name][0], "ours": kinds[name][1], "seconds": min(took), "words": count,
         "words_per_second": round(count / min(took))}
        for name, took in sorted(seconds.items(), key=lambda pair: min(pair[1]))
    ]  # fmt: skip


def bars(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare each program with the best hand-written one of its kind."""
    found = []
    for row in rows:
        rivals = [r["seconds"] for r in rows if r["kind"] == row["kind"] and not r["ours"]]
        if row["ours"] and rivals:
            found.append({"case": row["case"], "ratio": row["seconds"] / min(rivals), "bar": BAR})
    return found


def main() -> int:
    """Print the table and the targets; always return 0, since a busy machine is not an error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline")
    parser.add_argument("--words", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = measure(options.words, options.rounds)
    print(f"\n{'case':<52}{'kind':>13}{'seconds':>9}{'words/s':>12}")
    for row in rows:
        print(f"{row['case']:<52}{row['kind']:>13}{row['seconds']:>9.2f}{row['words_per_second']:>12,}")
    print()
    for bar in bars(rows):
        word = "within" if bar["ratio"] <= bar["bar"] else "OVER"
        print(f"{bar['case']}: {bar['ratio']:.2f} of the best by hand, {word} the bar of {bar['bar']}")
    if options.json is not None:
        options.json.write_text(json.dumps({"cases": rows, "bars": bars(rows)}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
