"""The merged view: what the batch says about the past and the online topology about the rest, as one answer.

Theory of operation. A view is a folder (``ViewSink.path``)::

    VIEW/view.json                     what it is: name, program, step, monoid, length of its buckets
    VIEW/batch/<version>/              one result of the batch: Parquet rows and ``_heronry.json`` with the instant T
    VIEW/online/BUCKET/TASK.msgpack    what a task of the online reducer has of a bucket
    VIEW/online/BUCKET/TASK-….msgpack  what it has let go of: both add up
    VIEW/progress/TASK.json            how far event time has come there, all sources seen

The batch owns every bucket that ends at or before T, the online layer every other one. T stands in the folder of the
result it belongs to, and that folder got its name by one rename, so a reader never sees one without the other: it
takes the highest version there is and stays with it. A batch result is only ever replaced by a later version; the two
latest are kept, so that a reader who is at work does not lose its files.

What is promised: buckets of the batch are exact (each archived record counted once, however often it was replayed
online). Buckets of the online layer are those of its last complete checkpoint, each record counted once; for a topology
whose reliability is ATMOST_ONCE they hold what its tasks have not lost. A query that spans T is both.
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
from heronry.pipeline.row_groups import Span, in_order, just_after, row_groups
from heronry.pipeline.rows import OnlineFile, Row, decode_key, key_bytes, may_hold, read_online
from heronry.streamlet.monoid import Monoid, by_name

DESCRIPTION, MANIFEST, BATCH, ONLINE = "view.json", "_heronry.json", "batch", "online"
PROGRESS = "progress"
FOREVER = 1 << 62  # of watermarks: nothing more will come
KEPT_VERSIONS = 2
WHOLE = Span()
PROMISE = (
    "buckets that end at or before `to` are the batch's, later ones the online layer's, as of its last complete "
    "checkpoint; in both each record counts once"
)


class ViewError(Failure):
    """The view cannot be read; the message says why and what to do."""


class NoSuchView(ViewError, NotFound):
    """There is no view of this name or at this place."""


@dataclass(frozen=True)
class Description:
    """What a view is. ``monoid`` is None for one of the user's own, whose rows cannot be added without their code."""

    name: str
    program: str
    step: str
    bucket_ms: int
    monoid: str | None = None
    parameters: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Batch:
    """One result of the batch: it owns every bucket that ends at or before ``to_ms``."""

    version: int
    to_ms: int
    folder: Path
    manifest: Mapping[str, Any]


class Answer(NamedTuple):
    """One key in one bucket (ms since 1970 UTC); ``owner`` is ``batch`` or ``online``."""

    key: Any
    start: int
    end: int
    value: Any
    owner: str


class Merged(NamedTuple):
    """A key in its canonical encoding, and its accumulators by (start, end) of a bucket, in order of time."""

    key: bytes
    buckets: list[tuple[tuple[int, int], Any]]


class Found(NamedTuple):
    """What lies in a span: how many keys at most, and they themselves, in order."""

    at_most: int
    keys: Iterator[Merged]


@dataclass(frozen=True)
class View:
    """A view as it is now: one batch result (or none yet) and the online files found after it was chosen."""

    description: Description
    batch: Batch | None
    folder: Path
    promise: str = PROMISE

    @property
    def to_ms(self) -> int | None:
        """T, up to which the batch is the authority; None before the first batch."""
        return self.batch.to_ms if self.batch else None

    def buckets(self, key: Any = ..., from_ms: int | None = None, to_ms: int | None = None) -> list[Answer]:
        """Each key and bucket that lies in [from, to), by key and time. ``key`` limits it to one. Raises ViewError."""
        found = self.read(span_of(key, from_ms, to_ms))
        return [answer for each in found.keys for answer in self.answers(each)]

    def totals(self, key: Any = ..., from_ms: int | None = None, to_ms: int | None = None) -> dict[Any, Any]:
        """Each key over all its buckets in [from, to): batch ⊕ online. Raises ViewError."""
        found = self.read(span_of(key, from_ms, to_ms))
        return {decode_key(each.key): self.total(each) for each in found.keys}

    def read(self, span: Span) -> Found:
        """The keys with a bucket in the span, one by one and in order: what is not taken is not read.

        Raises ViewError, now or while keys are taken.
        """
        monoid = self._monoid()
        files = [] if self.batch is None else _files(self.batch.folder)
        with _readable(self.folder):
            groups = row_groups(files, span)
        found = online_files(self.folder, self.to_ms, span)
        online = [row for file in found for row in file.rows if span.has(row) and not _owned(row.end, self.to_ms)]
        rows = in_order(groups, span, online)
        return Found(sum(group.rows for group in groups) + len(online), _keys(monoid, rows, self.folder))

    def answers(self, found: Merged) -> list[Answer]:
        """The buckets of a key, by time."""
        monoid, key = self._monoid(), decode_key(found.key)
        return [
            Answer(key, start, end, monoid.finish(acc), "batch" if _owned(end, self.to_ms) else "online")
            for (start, end), acc in found.buckets
        ]

    def total(self, found: Merged) -> Any:
        """The value of a key over all of its buckets. What was merged is used up by this."""
        monoid = self._monoid()
        return monoid.finish(reduce(monoid.add, [acc for _, acc in found.buckets]))

    def _monoid(self) -> Monoid[Any, Any]:
        if self.description.monoid is None:
            raise ViewError(
                f"view {self.description.name} adds up by a monoid of the program's own, whose code is not here; "
                "give it: read_view(name, monoid=…)"
            )
        return _builtin(self.description.monoid, self.description.parameters)


@dataclass(frozen=True)
class _Given(View):
    """A view whose monoid came from its caller."""

    monoid: Monoid[Any, Any] | None = None

    def _monoid(self) -> Monoid[Any, Any]:
        assert self.monoid is not None
        return self.monoid


@lru_cache(maxsize=64)
def _builtin(name: str, parameters: tuple[tuple[str, Any], ...]) -> Monoid[Any, Any]:
    return by_name(name, dict(parameters))


def _keys(monoid: Monoid[Any, Any], rows: Iterator[Row], folder: Path) -> Iterator[Merged]:
    """Rows by key as merged keys: those of one bucket are added. Raises ViewError."""
    with _readable(folder):
        for key, these in groupby(rows, attrgetter("key")):
            buckets: dict[tuple[int, int], Any] = {}
            for row in these:
                place, acc = (row.start, row.end), monoid.unpack(row.packed)
                buckets[place] = monoid.add(buckets[place], acc) if place in buckets else acc
            yield Merged(key, sorted(buckets.items(), key=itemgetter(0)))


def span_of(key: Any, from_ms: int | None, to_ms: int | None) -> Span:
    """That of one key, or with ``...`` of all. Raises UnsupportedKey, TypeError."""
    if key is ...:
        return Span(from_ms=from_ms, to_ms=to_ms)
    name = key_bytes(key)
    return Span(name, just_after(name), from_ms, to_ms)


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """What Arrow says of files that it does not understand, as ours."""
    try:
        yield
    except ValueError as error:  # an ArrowInvalid is one
        raise ViewError(
            f"the batch in {folder} cannot be read: {error}", "Run it again: heron pipeline run."
        ) from error


def online_files(folder: Path, owned_to_ms: int | None = None, span: Span = WHOLE) -> Iterator[OnlineFile]:
    """What the online reducers wrote, without buckets that end at or before ``owned_to_ms`` and those that do not lie
    in the span; for one text of its rows alone. Raises ViewError."""
    text = span.one_text
    for bucket in _buckets(folder):
        if not _begins_in(int(bucket.name), span):
            continue
        for file in sorted(bucket.glob("*.msgpack")):
            try:
                if text is not None and not may_hold(file, text):
                    continue
                found = read_online(file, text)
            except FileNotFoundError:
                continue  # the batch owns the bucket since a moment ago, and somebody tidied up
            except ValueError as error:
                raise ViewError(str(error)) from error
            if _owned(int(bucket.name) + found.length_ms, owned_to_ms):
                break
            yield found


def _buckets(folder: Path) -> list[Path]:
    """The folders of buckets, oldest first."""
    online = folder / ONLINE
    found = [entry for entry in online.iterdir() if _is_number(entry.name)] if online.is_dir() else []
    return sorted(found, key=lambda entry: int(entry.name))


def _is_number(name: str) -> bool:
    return name.removeprefix("-").isdecimal()


def _begins_in(start_ms: int, span: Span) -> bool:
    return (span.from_ms is None or start_ms >= span.from_ms) and (span.to_ms is None or start_ms < span.to_ms)


def _owned(end_ms: int, to_ms: int | None) -> bool:
    """True if the batch owns a bucket that ends here."""
    return to_ms is not None and end_ms <= to_ms


def open_view(folder: Path, monoid: Monoid[Any, Any] | None = None) -> View:
    """The view in ``folder`` at this moment. Raises NoSuchView, ViewError."""
    description = read_description(folder)
    batch = newest_batch(folder)
    if monoid is not None:
        return _Given(description, batch, folder, monoid=monoid)
    return View(description, batch, folder)


def read_description(folder: Path) -> Description:
    """Raises NoSuchView, ViewError."""
    try:
        found = json.loads((folder / DESCRIPTION).read_bytes())
        parameters = tuple((str(name), value) for name, value in found.get("parameters", ()))
        return Description(**{**found, "parameters": parameters})
    except (FileNotFoundError, NotADirectoryError):
        return _from_online(folder)  # no batch has run yet
    except (ValueError, TypeError) as error:
        raise ViewError(f"{folder / DESCRIPTION} is not understood: {error}") from error


def _from_online(folder: Path) -> Description:
    for found in online_files(folder):
        return Description(found.view, "", "", found.length_ms, found.monoid, tuple(found.parameters.items()))
    raise NoSuchView(f"there is no view in {folder}: neither a batch nor the online topology has written there")


def describe_view(folder: Path, description: Description) -> None:
    """Write ``view.json``, at once. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / DESCRIPTION, json.dumps(asdict(description), indent=2))


def batches(folder: Path) -> list[Batch]:
    """Every whole result there is, oldest first."""
    found = []
    for entry in (folder / BATCH).iterdir() if (folder / BATCH).is_dir() else ():
        if entry.name.isdecimal():
            try:
                manifest = json.loads((entry / MANIFEST).read_bytes())
            except FileNotFoundError:
                continue  # pruned a moment ago
            found.append(Batch(int(entry.name), int(manifest["to_ms"]), entry, manifest))
    return sorted(found, key=lambda batch: batch.version)


def newest_batch(folder: Path) -> Batch | None:
    """The result that counts."""
    return next(iter(reversed(batches(folder))), None)


def settled_ms(folder: Path) -> int | None:
    """Up to where every source's watermark has passed, by what the online reducers say; ``FOREVER`` when there are none
    or all have come to their end, None while one of them does not know.

    Raises ViewError.
    """
    place, found = folder / PROGRESS, []
    try:
        of = int(json.loads((place / "0.json").read_bytes())["of"]) if place.is_dir() else 0
        found = [json.loads((place / f"{task}.json").read_bytes())["watermark_ms"] for task in range(of)]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ViewError(f"{place} is not understood: {error!r}") from error
    return None if None in found else min(found, default=FOREVER)


def next_version(folder: Path, to_ms: int | None = None) -> Path:
    """Where the next result goes. The rename to it fails if somebody else was faster.

    Raises ViewError if ``to_ms`` lies before what was pruned: nobody would have the buckets between.
    """
    found = batches(folder)
    kept = _pruned_to_ms(found)
    if to_ms is not None and kept is not None and to_ms < kept:
        raise ViewError(
            f"the view in {folder} cannot go back to {to_ms} ms: batches up to {kept} ms have taken the place of the "
            "online buckets before that; give a --to that is not earlier",
            "`heron pipeline status VIEW` shows which batches there are.",
        )
    return folder / BATCH / f"{(found[-1].version if found else 0) + 1:06d}"


def _pruned_to_ms(found: list[Batch]) -> int | None:
    """Up to where the online buckets may be gone: what both of the two latest batches own."""
    if len(found) < KEPT_VERSIONS:
        return None
    return min(batch.to_ms for batch in found[-KEPT_VERSIONS:])


def prune(folder: Path) -> None:
    """Remove batch results before the two latest, and the online buckets that both of these own."""
    found = batches(folder)
    for batch in found[:-KEPT_VERSIONS]:
        shutil.rmtree(batch.folder, ignore_errors=True)
    owned_to_ms = _pruned_to_ms(found)
    if owned_to_ms is None:
        return
    length_ms = read_description(folder).bucket_ms
    for bucket in _buckets(folder):
        if _owned(int(bucket.name) + length_ms, owned_to_ms):
            shutil.rmtree(bucket, ignore_errors=True)


def _files(folder: Path) -> list[Path]:
    """The Parquet files of a result, by name."""
    if not folder.is_dir():
        return []
    found = (file for file in folder.rglob("*.parquet"))
    return sorted(f for f in found if not any(p.startswith((".", "_")) for p in f.relative_to(folder).parts))
