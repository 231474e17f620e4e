"""Rows of history files, added up in the worker that reads them, before Spark shuffles them.

A raw file has five minutes of a container, and a rolled-up one is sorted by series. Rows that add up to one are
therefore mostly close to each other. Files are read here piece by piece, and Arrow and numpy add up each piece by
column. Six rows become one before they cross to the JVM, and memory is bounded by a piece. Spark adds up the rest (rows
of one key in several pieces, files or container runs). Rows are a monoid, so the place does not matter
(``heron_runtime.model.history.MetricRow.add``).

The functions are pickled by value, since executors on a cluster may not have Heronry. They import only pyarrow and
numpy, inside the functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

KEY = ("start_ms", "container", "component", "instance", "metric", "kind")
COLUMNS = (*KEY, "count", "sum", "low", "high", "last", "last_ms", "bins", "counts")
PIECE = 65_536  # rows of a file in memory at once


def reader(length_ms: int, piece: int = PIECE) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function for ``mapInArrow`` that maps rows (day, path) to the rows of these files.

    The rows are in buckets of ``length_ms`` milliseconds.
    """

    def read(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        for batch in batches:
            for day, path in zip(batch["day"].to_pylist(), batch["path"].to_pylist(), strict=True):
                for part in pq.ParquetFile(path).iter_batches(piece, columns=list(COLUMNS)):
                    table = added_up(pa.Table.from_batches([part]).select(list(COLUMNS)), length_ms)
                    days = pa.repeat(pa.scalar(day, pa.int32()), table.num_rows)
                    yield from table.add_column(0, "day", days).combine_chunks().to_batches()

    return read


def joiner(piece: int = PIECE) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function for ``mapInArrow`` that joins files: rows (number, paths as JSON, target) to (number, whole).

    ``whole`` is True if ``target`` now holds the rows of all these files, and False if one of them was missing.
    """

    def join(batches: Iterable[Any]) -> Iterator[Any]:
        import json

        import pyarrow as pa

        for batch in batches:
            for number, paths, target in zip(
                *(batch[n].to_pylist() for n in ("number", "paths", "target")), strict=True
            ):
                try:
                    joined(json.loads(paths), target, piece)
                    whole = True
                except FileNotFoundError:
                    whole = False
                yield pa.RecordBatch.from_pydict(
                    {"number": pa.array([number], pa.int32()), "whole": pa.array([whole], pa.bool_())}
                )

    return join


def joined(paths: list[str], target: str, piece: int = PIECE) -> None:
    """Write the rows of these files into one, in row groups of ``piece`` rows or a few more. Raises OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    waiting: list[Any] = []
    schema = pq.read_schema(paths[0])
    order = [
        (name, "ascending") for name in ("component", "metric", "instance", "start_ms") if "metric" in schema.names
    ]
    with pq.ParquetWriter(target, schema, compression="zstd", store_schema=False) as writer:

        def write() -> None:
            rows = pa.Table.from_batches(waiting, schema)
            writer.write_table(rows.sort_by(order) if order else rows)  # the order of raw files compresses best
            waiting.clear()

        for path in paths:
            with pq.ParquetFile(path) as file:
                for part in file.iter_batches(piece):
                    waiting.append(part.cast(schema))
                    if sum(each.num_rows for each in waiting) >= piece:
                        write()
        if waiting:
            write()


def added_up(rows: Any, length_ms: int) -> Any:
    """Return a table with one row for each key, in buckets of ``length_ms``. ``rows`` is a table with ``COLUMNS``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if rows.num_rows == 0:
        return rows
    start = pc.cast(rows["start_ms"], pa.int64())
    rows = rows.set_column(0, "start_ms", pc.multiply(pc.divide(start, length_ms), length_ms))
    group, first = _groups(rows)
    plain = rows.select(["count", "sum", "low", "high", "last", "last_ms"]).append_column("group", pa.array(group))
    # In order of time, so that the last value of a group is its newest; None is skipped.
    newest = [("last_ms", "ascending"), ("last", "ascending")]
    plain = plain.take(pc.sort_indices(plain, sort_keys=newest))
    sums = plain.group_by("group", use_threads=False).aggregate(
        [("count", "sum"), ("sum", "sum"), ("low", "min"), ("high", "max"), ("last", "last"), ("last_ms", "last")]
    )
    sums = sums.take(pc.sort_indices(sums, sort_keys=[("group", "ascending")]))
    offsets, bins, counts = _sketches(rows, group, len(first))
    keys = rows.select(list(KEY)).take(pa.array(first))
    row = {name: keys[name] for name in KEY}
    row |= {"count": sums["count_sum"], "sum": sums["sum_sum"], "low": sums["low_min"], "high": sums["high_max"]}
    row |= {"last": sums["last_last"], "last_ms": sums["last_ms_last"]}
    row["bins"] = pa.ListArray.from_arrays(offsets, bins)
    row["counts"] = pa.ListArray.from_arrays(offsets, counts)
    return pa.table(row)


def _groups(rows: Any) -> tuple[Any, Any]:
    """Return the number of each row's key, and for each number the first row with that key."""
    import numpy as np

    group = np.zeros(rows.num_rows, np.int64)
    first = np.zeros(1, np.int64)
    for name in KEY:
        codes = rows[name].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
        # Renumbered after each column, so that the product of two stays small.
        together = group * (int(codes.max()) + 1) + codes
        _, first, group = np.unique(together, return_index=True, return_inverse=True)
    return group, first


def _sketches(rows: Any, group: Any, groups: int) -> tuple[Any, Any, Any]:
    """Return the offsets, bins and counts of the lists of each group, with the bins in order."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    lists = rows["bins"].combine_chunks()
    owner = group[pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)]
    bins = pc.list_flatten(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    weights = pc.list_flatten(rows["counts"].combine_chunks()).to_numpy(zero_copy_only=False)
    if len(bins) == 0:
        return pa.array(np.zeros(groups + 1, np.int32)), pa.array([], pa.int32()), pa.array([], pa.float64())
    least = int(bins.min())
    span = int(bins.max()) - least + 1
    places, which = np.unique(owner * span + (bins - least), return_inverse=True)
    summed = np.bincount(which, weights=weights, minlength=len(places))
    lengths = np.bincount(places // span, minlength=groups)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.array(offsets), pa.array((places % span + least).astype(np.int32)), pa.array(summed)
