"""Random folders of input files in every format and layout, for properties that compare the engines."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
from hypothesis import strategies as st

from heronry.streamlet import Builder, collect, count, files, max_, mean, min_, session, sliding, sum_, tumbling
from heronry.streamlet.endpoints import FileSource
from heronry.streamlet.packed import BYTE_ORDER_MARK

Row = dict[str, Any]


def zst(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as file:
        file.write(data)
    return bytes(sink.getvalue().to_pybytes())


PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zst
}  # fmt: skip
FORMS = ("text", "json", "csv", "parquet", "orc")
LINES = ("text", "json", "csv")
DOTTED = "a.b%2E"  # a name that Spark and a URL would read otherwise
SCHEMA = {"k": "str", "n": "int", "x": "float", "b": "bool", "t": "int", "file": "str", DOTTED: "str"}
ARROW = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
SPARK_TYPES = {"str": "string", "int": "bigint", "float": "double", "bool": "boolean"}
FOLDERS = ("day=1/part=a%20b", "day=2/part=__HIVE_DEFAULT_PARTITION__/deeper")
FIELDS: tuple[Row, ...] = ({"day": 1, "part": "a b"}, {"day": 2, "part": None})  # of the folders
NAMES = ("a b", "c %41ä", "odd [1]{a,b}*?/d", "e:f", "x=1:2/g", "deep/h")
ROOT = "x%41 [1]{a,b}*?"  # as a pattern or a URL, it would match OTHER
OTHER = "xA 1a"
HIDDEN = (".hidden", "_skipped/no", "no._COPYING_", ".a b.crc")
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from([None, "a", "b", "ä b", "c,d", 'e"f']),
            "n": st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([2**63 - 1, -(2**63), 2**62])),
            "x": st.one_of(st.none(), st.floats(-1e6, 1e6)),
            "b": st.one_of(st.none(), st.booleans()),
            "t": st.integers(-100, 300),
            "file": st.sampled_from(["a", "b"]),
            DOTTED: st.sampled_from(["x", "", "y z"]),
        }
    ),
    max_size=12,
)


@dataclass(frozen=True)
class Reduction:
    """Reduction of the records of typed files."""

    key: str
    monoid: Any
    value: str | None
    window: Any

    @property
    def is_sql(self) -> bool:
        """Return True if Spark computes it by SQL; Python adds floats exactly."""
        return self.value != "x" or self.monoid.builtin not in ("sum", "mean")


REDUCTIONS = st.builds(
    lambda key, reduced, window: Reduction(key, *reduced, window),
    st.sampled_from(["k", "n", "x", "b", "file", DOTTED]),
    st.one_of(
        st.tuples(st.just(count()), st.none()),
        st.tuples(st.sampled_from([sum_(), mean()]), st.sampled_from(["n", "x", "b"])),
        st.tuples(st.sampled_from([min_(), max_()]), st.sampled_from(["k", "n", "x", "b", "t"])),
    ),
    st.sampled_from([None, tumbling(60), sliding(90, 40), session(20)]),
)


@dataclass(frozen=True)
class File:
    """Rows of one file; ``ending`` and ``mark`` apply to lines only."""

    rows: list[Row]
    ending: str = ""
    mark: bool = False


@dataclass(frozen=True)
class Recipe:
    """Random folder of files, and a program that reads it one by one and reduced."""

    form: str
    files: list[File]
    typed: bool
    partitioned: bool
    line_end: str
    reductions: list[Reduction]

    @property
    def has_types(self) -> bool:
        return self.typed if self.form in ("json", "csv") else self.form != "text"

    def write(self, place: Path) -> FileSource:
        """Write the files below a folder, with hidden ones beside them; return their source."""
        (place / OTHER).mkdir(parents=True)
        (place / OTHER / "a b 0").write_bytes(b"not read\0")
        place = place / ROOT
        for number, file in enumerate(self.files):
            path = place / self._name(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            if self.form in LINES:
                mark = BYTE_ORDER_MARK if file.mark else b""
                path.write_bytes(PACK[file.ending](mark + self._lines(file.rows, number).encode()))
            else:
                table = pa.Table.from_pylist(file.rows, pa.schema([(n, ARROW[kind]) for n, kind in SCHEMA.items()]))
                (orc if self.form == "orc" else pq).write_table(table, path)
        for name in HIDDEN:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(b"hidden\0")
        partitions = {"day": "int", "part": "str"} if self.partitioned and self.form != "text" else {}
        schema = SCHEMA if self.typed and self.form in ("json", "csv") else None
        return files(place, self.form, schema=schema, partitions=partitions)

    def _name(self, number: int) -> str:
        name = f"{NAMES[number % len(NAMES)]} {number}{self.files[number].ending if self.form in LINES else ''}"
        return f"{FOLDERS[number % 2]}/{name}" if self.partitioned else name

    def _lines(self, rows: list[Row], number: int) -> str:
        if self.form == "csv":
            text = io.StringIO()
            names = list(SCHEMA)[:: -1 if number % 3 else 1]  # in different orders
            writer = csv.DictWriter(text, names, lineterminator=self.line_end)
            writer.writeheader()
            writer.writerows(rows)  # None is empty
            return text.getvalue()
        made = [json.dumps(row) if self.form == "json" else repr(row) for row in rows]
        return self.line_end.join(made if self.form == "text" else [*made, "", " "])  # and lines without a record

    def records(self) -> list[Any]:
        """Return the records of all files, in any order."""
        found: list[Any] = []
        for number, file in enumerate(self.files):
            fields = FIELDS[number % 2] if self.partitioned and self.form != "text" else {}
            found += [self._record(row) if self.form == "text" else self._record(row) | fields for row in file.rows]
        return found

    def _record(self, row: Row) -> Any:
        if self.form == "text":
            return repr(row)
        if self.form != "csv":
            return dict(row)
        if not self.typed:
            return {name: "" if value is None else str(value) for name, value in row.items()}
        return {name: "" if value is None and SCHEMA[name] == "str" else value for name, value in row.items()}

    def build(
        self, source: FileSource, end: Callable[[Any], None] = lambda stream: stream.sink(collect()), **config: Any
    ) -> Builder:
        """Return the builder; ``end`` is called with each stream that ends, the first of all records."""
        builder = Builder("files", config)
        read = builder.source(source, event_time="t" if self.has_types else None, name="source")
        end(read)
        if not self.has_types:
            end((read.key_by() if self.form == "text" else read.key_by(repr)).count_by_key())
        for made in self.reductions if self.has_types else ():
            keyed = read.key_by(made.key)
            keyed = keyed if made.window is None else keyed.window(made.window, allowed_lateness=1000)
            end(keyed.reduce_by_key(made.monoid, made.value))
        return builder


RECIPES = st.builds(
    Recipe,
    st.sampled_from(FORMS),
    st.lists(st.builds(File, ROWS, st.sampled_from(sorted(PACK)), st.booleans()), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
    st.lists(REDUCTIONS, min_size=2, max_size=3),
)
_ROWS: list[Row] = [
    {"k": "a", "n": 1, "x": 0.5, "b": True, "t": 0, "file": "a", DOTTED: "x"},
    {"k": None, "n": None, "x": None, "b": None, "t": 70, "file": "b", DOTTED: ""},
    {"k": 'e"f', "n": 2**63 - 1, "x": -1.5, "b": False, "t": 85, "file": "a", DOTTED: "y z"},
]
#: Each format, with and without types and folders as fields; lines in files with each ending and byte order mark.
EVERY = [
    Recipe(
        form, [*(File(_ROWS, ending, mark) for ending in PACK for mark in (False, True)), File([]), File([], "", True)],
        typed, partitioned, "\r\n" if partitioned else "\n",
        [
            Reduction("k", sum_(), "n", None), Reduction("file", count(), None, tumbling(60)),
            Reduction(DOTTED, max_(), "t", sliding(90, 40)), Reduction("b", sum_(), "x", session(20)),
        ],
    )
    for form in FORMS for typed in (False, True) for partitioned in (False, True)
    if form in ("json", "csv") or (typed and not (form == "text" and partitioned))
]  # fmt: skip
