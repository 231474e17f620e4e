r"""Sources and sinks as values: declared once, implemented by each engine.

Theory of operation. A source is a list of *positions* in a fixed order, each with one record: a file and the number of
the record in it, or a place in a sequence. Positions never change as long as the input only grows. A record therefore
has an identity (``message id``: source step, file, number) that is the same in every engine and after every replay. The
archive stores it, and readers of an archive drop records whose id and index they have already seen.

Files: ``path`` is a file or a folder, on the machine that reads it or at a URL of a store (trees.py). Folders are
searched recursively, in the order of relative paths. Names beginning with ``.`` or ``_`` are ignored, so files of a
writer that renames finished files into place are never read half-written. Formats:

* ``text``: a record is a line without its end, a str. Lines end with ``\n``; one ``\r`` before it is removed as well.
  The encoding is UTF-8; invalid bytes become U+FFFD. Empty lines are records.
* ``json``: a record is the value in one line, most often a dict. Lines of white space are skipped and not numbered.
* ``csv``: a record is a dict of str by the names in the first line of each file (RFC 4180, UTF-8, no line breaks
  inside a field: a line is a record). An empty field is the empty str.
* ``parquet``, ``orc``: a record is a dict by column name. Files must not change once they are seen. ORC times, and
  dates before 1582, are rejected with the name of the column: orc.py.
* ``archive``: output of an archive sink. A record is the record that was archived, with its event time. Duplicates
  (equal message id and index) are dropped.

Files of text, json and csv may be compressed, and begin with a byte order mark: see packed.py.

Servers (Redis, PostgreSQL, Kafka, NATS): servers.py, server_sinks.py.

Folders ``NAME=VALUE`` may be fields of the records in them (``partitions``): partitions.py.

``schema`` (names and types: str int float bool) makes csv and json records plain: each has exactly these fields, in
this order, converted. A value that is missing, null or (csv, not str) empty is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, overload
from urllib.parse import unquote, urlsplit

from heron_runtime.extensions import STREAMLET_SINKS, ExtensionError
from heron_runtime.failures import did_you_mean
from heron_runtime.model.file_urls import SINGLE, scheme_of, source_problem
from heronry.api.errors import TopologyError
from heronry.streamlet.extract import Extractor
from heronry.streamlet.partitions import PARTITION_TYPES
from heronry.streamlet.server_sinks import ServerSink
from heronry.streamlet.servers import ServerSource
from heronry.streamlet.windows import HOUR_MS, whole_ms

SOURCE_FORMATS = ("text", "json", "csv", "parquet", "orc", "archive")
COLUMNAR = ("parquet", "orc")  # formats whose files contain the names and types of their columns
SINK_FORMATS = ("json", "parquet", "csv")
TYPES = ("str", "int", "float", "bool")
Schema: TypeAlias = tuple[tuple[str, str], ...]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class FileSource(Generic[T_co]):
    """Source of the records of files.

    ``by_hour``: folders ``date=YYYY-MM-DD/hour=HH`` below ``path``, by event time in UTC.
    """

    path: str
    format: str
    schema: Schema = ()
    delimiter: str = ","
    grows: bool = False  # unbounded: the folder gets new files, and text, json and csv files get new lines
    by_hour: bool = False
    kind: Literal["files"] = "files"
    partitions: Schema = ()  # fields in the names of folders
    options: str = ""  # at a URL: path of a JSON file, on each host, with the store's options


@dataclass(frozen=True, slots=True)
class SequenceSource(Generic[T_co]):
    """Source of ``make(i)`` (or i itself) for i from ``start`` below ``stop``. Without a ``stop`` it is unbounded.

    ``rate`` is the number of records per second, over all tasks, online. Batch engines ignore it. ``make`` must depend
    only on i.
    """

    stop: int | None
    start: int = 0
    make: Callable[[int], T_co] | None = None
    rate: float | None = None
    kind: Literal["sequence"] = "sequence"


@dataclass(frozen=True, slots=True)
class FileSink:
    """Sink of files in a folder, with new files for each task. Each is renamed into place when it is complete.

    json: one record per line, with named tuples and dataclasses as objects. parquet, csv: records must be dicts, named
    tuples or dataclasses of plain values. csv: the columns are ``fields``, named in the first line of each file.
    ``partition_by``: folders ``NAME=VALUE`` below ``path``, by these fields of a record (layout.py).
    """

    path: str
    format: str
    kind: Literal["files"] = "files"
    fields: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ArchiveSink:
    """Sink of Parquet files by event hour, to be read back with ``format="archive"``.

    The files are ``PATH/date=YYYY-MM-DD/hour=HH/*.parquet`` with the columns ``message_id`` (string), ``index``
    (string; the record's place among the records derived from its source record, "" if nothing was flattened),
    ``event_time`` (int64, ms since 1970 UTC) and ``value`` (string, the record as JSON). Records must survive a round
    trip through JSON unchanged: None, bool, int, float, str, list, dict with str keys.
    """

    path: str
    event_time: Extractor | None = None  # None: that of the source
    unit: str = "s"
    kind: Literal["archive"] = "archive"


@dataclass(frozen=True, slots=True)
class ViewSink:
    """Sink that publishes a reducer's accumulators by key and bucket, for the merged view of batch and online.

    It must directly follow a reducer. A window's bucket is its start. Without windows, buckets are ``bucket_ms`` of
    event time (that of the source). ``path`` is the folder of the view.
    """

    name: str
    path: str
    bucket_ms: int = HOUR_MS
    kind: Literal["view"] = "view"


@dataclass(frozen=True, slots=True)
class CollectSink:
    """Sink for development and tests.

    The reference evaluator returns the records. Online they are written as JSON to the topology's folder
    (``collect/``).
    """

    kind: Literal["collect"] = "collect"


Source: TypeAlias = FileSource[T] | SequenceSource[T] | ServerSource


class PluggedSink(Protocol):
    """Interface of a user-defined sink: a frozen dataclass with slots, of plain values.

    ``writer`` makes the writer of the online engine. Other engines do not support plugged-in sinks.
    """

    @property
    def kind(self) -> str:
        """Name of the sink, for messages and the names of steps."""

    def writer(self, step: str, task: str, folder: Path) -> Any:
        """Return the ``heronry.streamlet.online.writers.Writer`` of a step in a task.

        ``folder`` is that of the topology.
        """


BUILT_IN_SINKS = (FileSink, ArchiveSink, ViewSink, CollectSink, ServerSink)
Sink: TypeAlias = FileSink | ArchiveSink | ViewSink | CollectSink | ServerSink | PluggedSink


@overload
def files(
    path: str | Path,
    format: Literal["text"],
    *,
    grows: bool = False,
    by_hour: bool = False,
    options: str | Path = "",
) -> FileSource[str]: ...
@overload
def files(
    path: str | Path,
    format: Literal["csv", "parquet", "orc"],
    *,
    schema: Mapping[str, str] | None = None,
    delimiter: str = ",",
    grows: bool = False,
    by_hour: bool = False,
    partitions: Sequence[str] | Mapping[str, str] = (),
    options: str | Path = "",
) -> FileSource[dict[str, Any]]: ...
@overload
def files(
    path: str | Path,
    format: str = "json",
    *,
    schema: Mapping[str, str] | None = None,
    delimiter: str = ",",
    grows: bool = False,
    by_hour: bool = False,
    partitions: Sequence[str] | Mapping[str, str] = (),
    options: str | Path = "",
) -> FileSource[Any]: ...
def files(
    path: str | Path,
    format: str = "json",
    *,
    schema: Mapping[str, str] | None = None,
    delimiter: str = ",",
    grows: bool = False,
    by_hour: bool = False,
    partitions: Sequence[str] | Mapping[str, str] = (),
    options: str | Path = "",
) -> FileSource[Any]:
    """Return a source of a file, or of a folder of files.

    Args:
        path: Path, which may be relative to the current folder when the program is built, or a URL that fsspec
            supports.
        format: Format of the files; one of text, json, csv, parquet, orc, archive.
        schema: Names and types (str, int, float, bool) of the fields of json and csv records.
        delimiter: Delimiter of csv fields, one character.
        grows: True if files, or lines at the end of files, will be added.
        by_hour: True for folders ``date=YYYY-MM-DD/hour=HH``, by event time in UTC.
        partitions: Names of folders ``NAME=VALUE`` that are fields of the records in them, or a mapping to their types
            (str or int). Default type: str.
        options: Path of a JSON file on each host with the options of the store, such as passwords and keys.

    Raises:
        TopologyError: An argument is invalid.
    """
    _one_of("the format of files()", format, SOURCE_FORMATS)
    if schema and format not in ("json", "csv"):
        raise TopologyError(f"files(format={format!r}) does not accept a schema: only json and csv use one")
    for name, kind in (schema or {}).items():
        _one_of(f"the type of field {name!r}", kind, TYPES)
    if len(delimiter) != 1:
        raise TopologyError(f"delimiter is {delimiter!r}; write one character")
    fields = tuple((schema or {}).items())
    folders = _folders(partitions, format, fields)
    by_hour = bool(by_hour or format == "archive")
    place, given = _absolute(path), str(options)
    if given and not (is_url(place) and Path(given).is_absolute()):
        raise TopologyError(
            f"options of files() is {given!r}; write a JSON file's whole path, because tasks run in their own folders"
            if is_url(place)
            else f"options of files() are for URLs, and {place} is not one: omit them"
        )
    if is_url(place) and scheme_of(place) in SINGLE and (grows or place.endswith("/")):
        raise TopologyError(f"{place} cannot be a folder or grow: over http a URL is one file, which is read once")
    return FileSource(place, format, fields, delimiter, bool(grows), by_hour, partitions=folders, options=given)


def _folders(given: Sequence[str] | Mapping[str, str], format: str, schema: Schema) -> Schema:
    """Return names and types of the fields in folder names.

    Raises:
        TopologyError: The declaration is invalid.
    """
    if isinstance(given, str):
        given = (given,)
    fields = tuple(given.items()) if isinstance(given, Mapping) else tuple((name, "str") for name in given)
    names = [name for name, _ in fields]
    if not all(isinstance(name, str) and name for name in names) or len({*names}) < len(names):
        raise TopologyError(f"partitions of files() are {given!r}; write each name of a field once: partitions=['day']")
    for name, kind in fields:
        _one_of(f"the type of partition {name!r}", kind, PARTITION_TYPES)
    both = [name for name, _ in schema if name in names]
    if both:
        raise TopologyError(f"files() has {both[0]!r} in its schema and in its partitions: name it in one of them only")
    if fields and format not in ("json", "csv", *COLUMNAR):
        raise TopologyError(f"files(format={format!r}) does not accept partitions: its records have no fields")
    return fields


@overload
def sequence(
    stop: int | None = None, make: None = None, *, start: int = 0, rate: float | None = None
) -> SequenceSource[int]: ...
@overload
def sequence(
    stop: int | None, make: Callable[[int], T], *, start: int = 0, rate: float | None = None
) -> SequenceSource[T]: ...
@overload
def sequence(
    stop: int | None = None, *, make: Callable[[int], T], start: int = 0, rate: float | None = None
) -> SequenceSource[T]: ...
def sequence(
    stop: int | None = None,
    make: Callable[[int], Any] | None = None,
    *,
    start: int = 0,
    rate: float | None = None,
) -> SequenceSource[Any]:
    """Return a deterministic generator of ``make(i)`` for i in ``range(start, stop)``.

    Args:
        stop: End of the numbers (exclusive). None: unbounded.
        make: Function of the number. Default: the number itself.
        start: First number.
        rate: Records per second, over all tasks, online. Default: unlimited.

    Raises:
        TopologyError: An argument is invalid.
    """
    if make is not None and not callable(make):
        raise TopologyError(f"sequence(make={make!r}): write a function of the number")
    if rate is not None and not rate > 0:
        raise TopologyError(f"sequence(rate={rate!r}): write a positive number of records per second, or omit it")
    return SequenceSource(stop, start, make, rate)


def to_files(
    path: str | Path, format: str = "json", *, fields: Sequence[str] = (), partition_by: str | Sequence[str] = ()
) -> FileSink:
    """Return a sink that writes records to files in a folder.

    Args:
        path: The folder.
        format: Format of the files; one of json, parquet, csv.
        fields: Columns of csv, in order. Other fields of a record are omitted.
        partition_by: Fields of the record. Each combination of their values gets a folder.

    Raises:
        TopologyError: An argument is invalid.
    """
    _one_of("the format of to_files()", format, SINK_FORMATS)
    by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    for what, names in (("fields", tuple(fields)), ("partition_by", by)):
        if not all(isinstance(name, str) and name for name in names) or isinstance(fields, str):
            raise TopologyError(f"{what} of to_files() is {names!r}; write names of fields: {what}=['a', 'b']")
        if len({name.lower() for name in names}) < len(names):
            raise TopologyError(f"{what} of to_files() names a field twice (capitals do not tell them apart): {names}")
    if any(name.startswith((".", "_")) for name in by):
        raise TopologyError(
            f"partition_by is {by!r}; a name that begins with . or _ would hide its folders from readers"
        )
    if (format == "csv") != bool(fields):
        raise TopologyError(
            "to_files(…, 'csv') needs fields=['a', 'b'], its columns: all files must have the same columns"
            if format == "csv"
            else f"to_files(…, {format!r}) does not accept fields: it writes whole records"
        )
    return FileSink(_absolute(path), format, fields=tuple(fields), partition_by=by)


def archive(path: str | Path, event_time: Any = None, unit: str = "s") -> ArchiveSink:
    """Return a sink that stores records as Parquet by event hour, for the batch engine.

    ``event_time`` defaults to that of the source.
    """
    from heronry.streamlet.extract import as_extractor

    _one_of("unit", unit, ("s", "ms"))
    return ArchiveSink(_absolute(path), None if event_time is None else as_extractor(event_time), unit)


def view(name: str, path: str | Path, bucket: Any = 3600) -> ViewSink:
    """Return a sink that publishes a reducer for merged views. ``bucket`` is in seconds or a timedelta.

    Raises:
        TopologyError: The bucket or the path is invalid.
    """
    return ViewSink(name, _absolute(path), whole_ms(bucket, "the bucket of a view", least=1))


def collect() -> CollectSink:
    """Return a sink that collects the records, for development."""
    return CollectSink()


def sink_of(name: str, **arguments: Any) -> Sink:
    """Return the built-in or plugged-in sink of this name, made with these arguments.

    Raises:
        TopologyError: The name is unknown, or the plugin cannot be loaded.
    """
    try:
        made: Sink = STREAMLET_SINKS.load(name)(**arguments)
    except ExtensionError as error:
        raise TopologyError(error.line()) from error
    return made


def _one_of(what: str, given: Any, known: Sequence[str]) -> None:
    if given not in known:
        raise TopologyError(f"{what} is {given!r}; write one of {', '.join(known)}{did_you_mean(str(given), known)}")


def _absolute(path: str | Path) -> str:
    """Return the absolute form of a path. URLs are returned unchanged.

    Tasks run in their own folders, so a relative path is resolved where the program is built.

    Raises:
        TopologyError: The path is empty, or the URL contains a secret.
    """
    text = str(path)
    if not text:
        raise TopologyError("a path is empty; write a file or a folder (. is the current one)")
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path)
    if not is_url(text):
        return str(Path(text).absolute())
    if problem := source_problem(text):
        raise TopologyError(problem)
    return text


def is_url(path: str) -> bool:
    """Return True for a path in a store, or on a file system other than the local one."""
    return "://" in path
