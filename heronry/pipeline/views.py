"""Merged view of the batch's results for the past and the online topology's results for later times.

Theory of operation. A view is a folder (``ViewSink.path``)::

    VIEW/view.json                     description: name, program, step, monoid, length of the buckets
    VIEW/batch/<version>/              one result of the batch: Parquet rows and ``_heronry.json`` with the instant T
    VIEW/online/BUCKET/TASK.msgpack    rows of a bucket in a task of the online reducer
    VIEW/online/BUCKET/TASK-….msgpack  rows that the task has released: both add up
    VIEW/progress/TASK.json            event time progress of the task over all sources

The batch owns every bucket that ends at or before T, and the online layer owns all others. T is stored in the folder of
the result it belongs to, and that folder gets its name by one rename. So a reader never sees one without the other: it
chooses the highest version and stays with it. A batch result is replaced only by a later version. The two latest
versions are kept, so that active readers do not lose their files.

Guarantees: buckets of the batch are exact, that is, each archived record is counted once, however often it was replayed
online. Buckets of the online layer are those of its last complete checkpoint, with each record counted once. For a
topology with reliability ATMOST_ONCE they contain the records that its tasks have not lost. A query that spans T
combines both.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache, reduce
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from heron_runtime.failures import Failure, NotFound
from heron_runtime.files import replace_file
from heronry.pipeline.rows import (
    OnlineFile,
    Row,
    Span,
    decode_key,
    in_order,
    just_after,
    key_bytes,
    may_hold,
    read_online,
    row_groups,
)
from heronry.streamlet.monoid import Monoid, builtin_monoid

DESCRIPTION, MANIFEST, BATCH, ONLINE = "view.json", "_heronry.json", "batch", "online"
PROGRESS = "progress"
FOREVER = 1 << 62  # watermark of a finished input
KEPT_VERSIONS = 2
WHOLE = Span()
PROMISE = (
    "buckets that end at or before `to` are the batch's, later ones the online layer's, as of its last complete "
    "checkpoint; in both each record counts once"
)


class ViewError(Failure):
    """Error of a view that cannot be read. The message states the cause and a remedy."""


class NoSuchView(ViewError, NotFound):
    """Error of a view that does not exist."""


@dataclass(frozen=True)
class Description:
    """Description of a view.

    ``monoid`` is None for a monoid of the user, whose rows cannot be added without the user's code.
    """

    name: str
    program: str
    step: str
    bucket_ms: int
    monoid: str | None = None
    parameters: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Batch:
    """Result of a batch, which owns every bucket that ends at or before ``to_ms``."""

    version: int
    to_ms: int
    folder: Path
    manifest: Mapping[str, Any]


class Answer(NamedTuple):
    """Value of a key in one bucket (milliseconds since 1970 UTC). ``owner`` is ``batch`` or ``online``."""

    key: Any
    start: int
    end: int
    value: Any
    owner: str


class Merged(NamedTuple):
    """Key in its canonical encoding, with its accumulators by (start, end) of the bucket, in time order."""

    key: bytes
    buckets: list[tuple[tuple[int, int], Any]]


class Found(NamedTuple):
    """Keys of a span, in order, and an upper bound of their number."""

    at_most: int
    keys: Iterator[Merged]


@dataclass(frozen=True)
class View:
    """View in its state when it was opened: one batch result, if any, and the online layer.

    Attributes:
        description: Description of the view.
        batch: The batch result, or None before the first batch.
        folder: Folder of the view.
        promise: The view's guarantees, as text for users.
    """

    description: Description
    batch: Batch | None
    folder: Path
    promise: str = PROMISE

    @property
    def to_ms(self) -> int | None:
        """Return T, up to which the batch owns the buckets, or None before the first batch."""
        return self.batch.to_ms if self.batch else None

    def buckets(self, key: Any = ..., from_ms: int | None = None, to_ms: int | None = None) -> list[Answer]:
        """Return each key and bucket within [from, to), ordered by key and time.

        Args:
            key: If given, only this key is returned.
            from_ms: Inclusive start, in milliseconds since 1970 UTC; None means unbounded.
            to_ms: Exclusive end, in milliseconds since 1970 UTC; None means unbounded.

        Raises:
            ViewError: The view cannot be read.
        """
        merged = self.read(span_of(key, from_ms, to_ms))
        return [answer for each in merged.keys for answer in self.answers(each)]

    def totals(self, key: Any = ..., from_ms: int | None = None, to_ms: int | None = None) -> dict[Any, Any]:
        """Return the value of each key over all its buckets within [from, to), batch and online combined.

        Args:
            key: If given, only this key is returned.
            from_ms: Inclusive start, in milliseconds since 1970 UTC; None means unbounded.
            to_ms: Exclusive end, in milliseconds since 1970 UTC; None means unbounded.

        Returns:
            Values by key.

        Raises:
            ViewError: The view cannot be read.
        """
        merged = self.read(span_of(key, from_ms, to_ms))
        return {decode_key(each.key): self.total(each) for each in merged.keys}

    def read(self, span: Span) -> Found:
        """Return the keys with a bucket in the span, as an iterator in key order that reads lazily.

        Raises:
            ViewError: The view cannot be read. It may also be raised while iterating.
        """
        monoid = self._monoid()
        files = [] if self.batch is None else _files(self.batch.folder)
        with _readable(self.folder):
            groups = row_groups(files, span)
        online_part = online_files(self.folder, self.to_ms, span)
        online = [row for file in online_part for row in file.rows if span.has(row) and not _owned(row.end, self.to_ms)]
        rows = in_order(groups, span, online)
        return Found(sum(group.rows for group in groups) + len(online), _keys(monoid, rows, self.folder))

    def answers(self, merged: Merged) -> list[Answer]:
        """Return the buckets of a key, in time order."""
        monoid, key = self._monoid(), decode_key(merged.key)
        return [
            Answer(key, start, end, monoid.finish(acc), "batch" if _owned(end, self.to_ms) else "online")
            for (start, end), acc in merged.buckets
        ]

    def total(self, merged: Merged) -> Any:
        """Return the value of a key over all of its buckets. This may modify the accumulators of ``merged``."""
        monoid = self._monoid()
        return monoid.finish(reduce(monoid.add, [acc for _, acc in merged.buckets]))

    def _monoid(self) -> Monoid[Any, Any]:
        if self.description.monoid is None:
            raise ViewError(
                f"view {self.description.name} uses a monoid of its program, whose code is not available here; "
                "pass it: read_view(name, monoid=…)"
            )
        return _builtin(self.description.monoid, self.description.parameters)


@dataclass(frozen=True)
class _Given(View):
    """View whose monoid was passed by the caller."""

    monoid: Monoid[Any, Any] | None = None

    def _monoid(self) -> Monoid[Any, Any]:
        assert self.monoid is not None
        return self.monoid


@lru_cache(maxsize=64)
def _builtin(name: str, parameters: tuple[tuple[str, Any], ...]) -> Monoid[Any, Any]:
    return builtin_monoid(name, dict(parameters))


def _keys(monoid: Monoid[Any, Any], rows: Iterator[Row], folder: Path) -> Iterator[Merged]:
    """Yield rows as merged keys, adding those of the same bucket. Raises ViewError."""
    with _readable(folder):
        for key, these in groupby(rows, attrgetter("key")):
            buckets: dict[tuple[int, int], Any] = {}
            for row in these:
                place, acc = (row.start, row.end), monoid.unpack(row.packed)
                buckets[place] = monoid.add(buckets[place], acc) if place in buckets else acc
            yield Merged(key, sorted(buckets.items(), key=itemgetter(0)))


def span_of(key: Any, from_ms: int | None, to_ms: int | None) -> Span:
    """Return the span of one key, or of all keys if it is ``...``. Raises UnsupportedKey, TypeError."""
    if key is ...:
        return Span(from_ms=from_ms, to_ms=to_ms)
    name = key_bytes(key)
    return Span(name, just_after(name), from_ms, to_ms)


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Translate Arrow's errors of the block into ViewError."""
    try:
        yield
    except ValueError as error:  # the base class of ArrowInvalid
        raise ViewError(
            f"the batch in {folder} cannot be read: {error}", "Run it again: heron pipeline run."
        ) from error


def online_files(folder: Path, owned_to_ms: int | None = None, span: Span = WHOLE) -> Iterator[OnlineFile]:
    """Yield the files of the online layer whose buckets begin in the span and are not owned by the batch.

    Args:
        folder: Folder of the view.
        owned_to_ms: Buckets that end at or before this time are skipped.
        span: Span of the rows; if it is one text, only that key's rows are included.

    Raises:
        ViewError: A file cannot be decoded.
    """
    text = span.one_text
    for bucket in _buckets(folder):
        if not _begins_in(int(bucket.name), span):
            continue
        for file in sorted(bucket.glob("*.msgpack")):
            try:
                if text is not None and not may_hold(file, text):
                    continue
                online = read_online(file, text)
            except FileNotFoundError:
                continue  # pruned meanwhile, because a new batch owns the bucket
            except ValueError as error:
                raise ViewError(str(error)) from error
            if _owned(int(bucket.name) + online.length_ms, owned_to_ms):
                break
            yield online


def _buckets(folder: Path) -> list[Path]:
    """Return the folders of buckets, oldest first."""
    online = folder / ONLINE
    entries = [entry for entry in online.iterdir() if _is_number(entry.name)] if online.is_dir() else []
    return sorted(entries, key=lambda entry: int(entry.name))


def _is_number(name: str) -> bool:
    return name.removeprefix("-").isdecimal()


def _begins_in(start_ms: int, span: Span) -> bool:
    return (span.from_ms is None or start_ms >= span.from_ms) and (span.to_ms is None or start_ms < span.to_ms)


def _owned(end_ms: int, to_ms: int | None) -> bool:
    """Return True if the batch owns a bucket that ends at this time."""
    return to_ms is not None and end_ms <= to_ms


def open_view(folder: Path, monoid: Monoid[Any, Any] | None = None) -> View:
    """Open the view in ``folder`` in its present state. Raises NoSuchView, ViewError."""
    description = read_description(folder)
    batch = newest_batch(folder)
    if monoid is not None:
        return _Given(description, batch, folder, monoid=monoid)
    return View(description, batch, folder)


def read_description(folder: Path) -> Description:
    """Return the description of a view. Raises NoSuchView, ViewError."""
    try:
        document = json.loads((folder / DESCRIPTION).read_bytes())
        parameters = tuple((str(name), value) for name, value in document.get("parameters", ()))
        return Description(**{**document, "parameters": parameters})
    except (FileNotFoundError, NotADirectoryError):
        return _from_online(folder)  # the first batch has not run yet
    except (ValueError, TypeError) as error:
        raise ViewError(f"{folder / DESCRIPTION} is not understood: {error}") from error


def _from_online(folder: Path) -> Description:
    for online in online_files(folder):
        return Description(online.view, "", "", online.length_ms, online.monoid, tuple(online.parameters.items()))
    raise NoSuchView(f"no view in {folder}: neither a batch nor the online topology has written there")


def describe_view(folder: Path, description: Description) -> None:
    """Write ``view.json`` atomically. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / DESCRIPTION, json.dumps(asdict(description), indent=2))


def batches(folder: Path) -> list[Batch]:
    """Return all complete batch results, oldest first."""
    versions = []
    for entry in (folder / BATCH).iterdir() if (folder / BATCH).is_dir() else ():
        if entry.name.isdecimal():
            try:
                manifest = json.loads((entry / MANIFEST).read_bytes())
            except FileNotFoundError:
                continue  # pruned meanwhile

            versions.append(Batch(int(entry.name), int(manifest["to_ms"]), entry, manifest))
    return sorted(versions, key=lambda batch: batch.version)


def newest_batch(folder: Path) -> Batch | None:
    """Return the current batch result, or None."""
    return next(iter(reversed(batches(folder))), None)


def settled_ms(folder: Path) -> int | None:
    """Return the time that every source's watermark has passed, according to the online reducers.

    Returns:
        Milliseconds since 1970 UTC. ``FOREVER`` if reducers do not exist, or all have reached the end of their input.
        None if the progress of at least one is unknown.

    Raises:
        ViewError: A progress file cannot be decoded.
    """
    place, watermarks = folder / PROGRESS, []
    try:
        of = int(json.loads((place / "0.json").read_bytes())["of"]) if place.is_dir() else 0
        watermarks = [json.loads((place / f"{task}.json").read_bytes())["watermark_ms"] for task in range(of)]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ViewError(f"{place} is not understood: {error!r}") from error
    return None if None in watermarks else min(watermarks, default=FOREVER)


def next_version(folder: Path, to_ms: int | None = None) -> Path:
    """Return the folder for the next batch result. The rename to it fails if another process has created it.

    Raises:
        ViewError: ``to_ms`` lies before pruned online buckets, so the buckets in between would be missing.
    """
    versions = batches(folder)
    pruned_to_ms = _pruned_to_ms(versions)
    if to_ms is not None and pruned_to_ms is not None and to_ms < pruned_to_ms:
        raise ViewError(
            f"the view in {folder} cannot go back to {to_ms} ms: batches up to {pruned_to_ms} ms have taken the place "
            "of the online buckets before that; give a --to that is not earlier",
            "`heron pipeline status VIEW` shows which batches there are.",
        )
    return folder / BATCH / f"{(versions[-1].version if versions else 0) + 1:06d}"


def _pruned_to_ms(versions: list[Batch]) -> int | None:
    """Return the time up to which online buckets may be pruned: both of the two latest batches own them."""
    if len(versions) < KEPT_VERSIONS:
        return None
    return min(batch.to_ms for batch in versions[-KEPT_VERSIONS:])


def prune(folder: Path) -> None:
    """Remove batch results before the two latest, and the online buckets that both of these own."""
    versions = batches(folder)
    for batch in versions[:-KEPT_VERSIONS]:
        shutil.rmtree(batch.folder, ignore_errors=True)
    owned_to_ms = _pruned_to_ms(versions)
    if owned_to_ms is None:
        return
    length_ms = read_description(folder).bucket_ms
    for bucket in _buckets(folder):
        if _owned(int(bucket.name) + length_ms, owned_to_ms):
            shutil.rmtree(bucket, ignore_errors=True)


def _files(folder: Path) -> list[Path]:
    """Return the Parquet files of a batch result, ordered by name."""
    if not folder.is_dir():
        return []
    files = (file for file in folder.rglob("*.parquet"))
    return sorted(f for f in files if not any(p.startswith((".", "_")) for p in f.relative_to(folder).parts))
