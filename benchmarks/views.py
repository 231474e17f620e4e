"""Query times of a merged view of ten million keys: a point query, a range, a page, a series and the top.

    python -m benchmarks.views [--keys 10000000] [--online 100000] [--files 8] [--json FILE]

The batch has the layout of Spark: keys spread over files by their hash, each file sorted and split into small row
groups. After T there are two buckets of an online layer in which ``--online`` keys were counted again. Answers are
checked.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from heronry.pipeline.questions import Range, page, series, top
from heronry.pipeline.rows import schema
from heronry.pipeline.views import BATCH, MANIFEST, ONLINE, Description, View, describe_view, open_view

HOUR = 3_600_000
ROW_GROUP = 12_500  # as Spark writes them at 512 KiB
ONLINE_TASKS = 4
REPEATS = 50


def key_of(number: int) -> str:
    return f"user-{number:09d}"


def value_of(number: int) -> int:
    """Return the batch value of a key: 0 to 65 535, so that few keys share the top."""
    return number * 7919 % 65_536


def generate(folder: Path, keys: int, online: int, files: int) -> None:
    """Write the view: an hour of the batch, and two later hours with a count of 1 for the first ``online`` keys."""
    describe_view(folder, Description("users", "p", "s", HOUR, "count"))
    version = folder / BATCH / "000001"
    (version / "rows").mkdir(parents=True)
    for file in range(files):
        numbers = np.arange(file, keys, files)
        digits = pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), 9, "0")
        names = pc.binary_join_element_wise("suser-", digits, "").cast(pa.binary())
        packed = np.empty((len(numbers), 3), np.uint8)  # MessagePack: 0xcd and 16 bits
        packed[:, 0], values = 0xCD, numbers * 7919 % 65_536
        packed[:, 1], packed[:, 2] = values >> 8, values & 0xFF
        offsets = pa.py_buffer(np.arange(0, 3 * len(numbers) + 1, 3, dtype=np.int32))
        acc = pa.Array.from_buffers(pa.binary(), len(numbers), [None, offsets, pa.py_buffer(packed.tobytes())])
        start = np.zeros(len(numbers), np.int64)
        table = pa.table([names, pa.array(start), pa.array(start + HOUR), acc], schema=schema())
        pq.write_table(
            table, version / "rows" / f"part-{file:05d}.parquet", compression="zstd", row_group_size=ROW_GROUP
        )
    (version / MANIFEST).write_text(json.dumps({"to_ms": HOUR}))
    head = {"view": "users", "monoid": "count", "parameters": {}, "bucket_ms": HOUR, "length_ms": None, "written_ms": 1}
    for bucket in (HOUR, 2 * HOUR):
        place = folder / ONLINE / str(bucket)
        place.mkdir(parents=True)
        for task in range(ONLINE_TASKS):
            rows = [[key_of(number), bucket, 1] for number in range(task, online, ONLINE_TASKS)]
            (place / f"{task}.msgpack").write_bytes(msgspec.msgpack.encode({**head, "rows": rows}))


def measured(ask: Callable[[int], Any], repeats: int = REPEATS) -> dict[str, float]:
    """Return the milliseconds of the first query, and the median and maximum of the others."""
    took = []
    for number in range(repeats + 1):
        began = time.perf_counter()
        ask(number)
        took.append((time.perf_counter() - began) * 1000)
    rest = took[1:] or took
    return {"first": round(took[0], 1), "median": round(statistics.median(rest), 1), "greatest": round(max(rest), 1)}


def questions(folder: Path, keys: int, online: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each kind of query as the tracker runs it: the view is opened each time."""
    spread = np.random.default_rng(1).integers(0, keys, REPEATS + 1).tolist()

    def view() -> View:
        return open_view(folder)

    def expected(number: int) -> int:
        return value_of(number) + (2 if number < online else 0)

    def point(turn: int) -> None:
        number = spread[turn]
        assert view().totals(key_of(number)) == {key_of(number): expected(number)}

    def pages(limit: int) -> Callable[[int], None]:
        def ask(turn: int) -> None:
            first = min(spread[turn], keys - limit)
            found = page(view(), limit, Range(first=key_of(first), last=key_of(first + limit - 1)))
            assert [tuple(t) for t in found.totals] == [(key_of(n), expected(n)) for n in range(first, first + limit)]

        return ask

    def over_time(turn: int) -> None:
        number = spread[turn] % online if online else spread[turn]
        assert len(series(view(), key_of(number), 100).buckets) == (3 if online else 1)

    def largest(turn: int) -> None:
        found = top(view(), 10)
        assert found[0].value >= found[-1].value >= 65_535 - 10

    yield "point", measured(point)
    yield "range of 100 keys", measured(pages(100))
    yield "range of 10 000 keys", measured(pages(min(10_000, keys)), 10)
    yield "series of a key", measured(over_time)
    yield "top 10", measured(largest, 0)


def main() -> None:
    """Generate the view, query it, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--online", type=int, default=100_000, help="keys that the online layer has, in two buckets")
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="views-")))
        generate(folder, args.keys, args.online, args.files)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        found: dict[str, Any] = {"keys": args.keys, "online": args.online, "files": args.files, "bytes": size}
        for name, took in questions(folder, args.keys, args.online):
            found[name] = took
            print(f"{name}: {took} ms", flush=True)
        found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(found))
    if args.json:
        args.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
