"""Lake sink in a process that is killed repeatedly and resumes from its last complete checkpoint.

``python lake_story.py FOLDER SEED FORMAT`` writes the numbers from 0 into a table in FOLDER, one row each; the rows of
a checkpoint go to several partitions if the table has any. The process forks the sink's process and kills it
(``kill -9``) at a moment drawn from the seed: usually at the n-th file operation of Python, which covers every gap
between two of them, or after some milliseconds, which covers the library. The master's record of a complete
checkpoint is a file renamed into place.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from heronry.connect.delta_sink import DeltaSink
from heronry.connect.iceberg_sink import IcebergSink
from tests.support import delta_tables, iceberg_tables
from tests.support.connectors import TaskPlace, checkpoint, made, row
from tests.support.delta_tables import arrow, deltalake

for module in ("pyarrow.parquet", "pyarrow.dataset", "deltalake.transaction", "pyiceberg.catalog.sql"):
    importlib.import_module(module)  # once for all lives

ROWS, A_CHECKPOINT, KILLS = 36, 3, 8
FORMAT = "delta"
STEPS = ("os.link", "os.mkdir", "os.rename", "os.remove", "open")


def life(folder: Path, number: int) -> None:
    """Run one process: settle what the previous one left, and continue."""
    known = folder / "complete.json"
    facts: dict[str, Any] = json.loads(known.read_text()) if known.exists() else {"next": 0, "number": 0, "token": None}
    sink = FORMATS[FORMAT].sink(folder)
    for token in sink.prepared():
        if token != facts["token"]:
            sink.abort(token)
    if facts["token"]:
        sink.commit(facts["number"], facts["token"])
    while facts["next"] < ROWS:
        for n in range(facts["next"], facts["next"] + A_CHECKPOINT):
            sink.process(row(n=n, word=WORD[n % 2]))
        under = max(facts["number"], 1000 * number) + 1  # no number is issued twice
        token = sink.prepare(checkpoint(under, number))
        facts = {"next": facts["next"] + A_CHECKPOINT, "number": under, "token": token}
        beside = known.with_suffix(".new")
        beside.write_text(json.dumps(facts))
        os.replace(beside, known)
        sink.commit(facts["number"], token)
    sink.close()


NUMBERS = arrow.schema([("n", arrow.int64()), ("word", arrow.string())])
WORD = ("a b/ü", None)


class Delta:
    """Operations on a Delta table. Another writer compacts its small files."""

    partition_by: ClassVar[list[str]] = []

    @classmethod
    def begin(cls, folder: Path) -> None:
        delta_tables.make(folder / "table", NUMBERS, partition_by=cls.partition_by)

    @staticmethod
    def rewrite(folder: Path) -> None:
        deltalake.DeltaTable(str(folder / "table")).optimize.compact()

    @staticmethod
    def sink(folder: Path) -> Any:
        return made(DeltaSink(), {"user.delta.path": str(folder / "table")}, TaskPlace(numbers=("n", "word")))


class DeltaByWord(Delta):
    """The same with partitions."""

    partition_by: ClassVar[list[str]] = ["word"]


class Iceberg:
    """Operations on an Iceberg table, where a file added twice is read twice. Another writer sets a property."""

    by: ClassVar[tuple[tuple[str, str], ...]] = ()

    @classmethod
    def begin(cls, folder: Path) -> None:
        iceberg_tables.make(folder, NUMBERS, by=cls.by)

    @staticmethod
    def rewrite(folder: Path) -> None:
        with iceberg_tables.opened(folder).load_table("lake.t").transaction() as change:
            change.set_properties(seen="again")

    @staticmethod
    def sink(folder: Path) -> Any:
        config = {"user.iceberg.catalog": iceberg_tables.catalog_in(folder), "user.iceberg.table": "lake.t"}
        return made(IcebergSink(), config, TaskPlace(numbers=("n", "word")))


class IcebergByWordAndBucket(Iceberg):
    """The same with partitions."""

    by = (("word", "identity"), ("n", "bucket[2]"))


FORMATS: dict[str, Any] = {
    "delta": Delta, "delta by word": DeltaByWord, "iceberg": Iceberg, "iceberg by word, bucket": IcebergByWordAndBucket,
}  # fmt: skip


def die_at(step: int, folder: Path) -> None:
    """Kill this process just before that file operation below the folder."""
    left = [step]

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event in STEPS and str(arguments[0]).startswith(str(folder)):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(heard)


def in_a_process(do: Callable[[Path], None], folder: Path) -> None:
    """Run in a child process: the library's threads do not survive a fork, so the forking process never calls it."""
    child = os.fork()
    if not child:
        do(folder)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def tell(folder: Path, seed: int) -> int:
    """Run all lives and return the number of kills."""
    drawn = random.Random(seed)
    in_a_process(FORMATS[FORMAT].begin, folder)
    for number in range(1, 10 * KILLS):
        by_step, at_most = drawn.random() < 0.7, number > KILLS
        step, secs = drawn.randint(1, 40), drawn.uniform(0, 0.05)
        child = os.fork()
        if not child:
            if by_step and not at_most:
                die_at(step, folder)
            life(folder, number)
            os._exit(0)
        if not by_step and not at_most:
            time.sleep(secs)
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        if not status:
            return number - 1
        assert status == signal.SIGKILL, status
        in_a_process(FORMATS[FORMAT].rewrite, folder)
    raise AssertionError("the sink never came to its end")


if __name__ == "__main__":
    FORMAT = sys.argv[3]
    sys.stdout.write(str(tell(Path(sys.argv[1]), int(sys.argv[2]))))
