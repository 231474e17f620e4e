"""Parquet sink with one file for each checkpoint and task (``spool.py``).

Types belong to fields, not to single values. ``user.sink.types`` defines them. Otherwise the first value of a field
that is not None defines its type for as long as the task lives. So a reader of the folder finds one type for each
field, unless tasks received different first values; define the types if that can happen. Rows are collected by column
and written in row groups, so memory usage is that of one group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from heronry.api.state import Checkpoint
from heronry.api.tuples import Tuple
from heronry.connect.settings import ConnectError, arrow_driver, mapping
from heronry.connect.spool import SpoolSink, cannot_hold

ROWS_A_GROUP = 32_768
TYPES = {"str": "string", "int": "int64", "float": "float64", "bool": "bool_", "bytes": "binary"}  # to pyarrow's
_GIVEN = mapping("user.sink.types", f"the type of fields, one of {', '.join(TYPES)} each")


class ParquetSink(SpoolSink):
    """Sink that writes tuples as rows of Parquet files into ``user.sink.folder``.

    Fields hold str, int (64 bits), float, bool, bytes and None. ``user.sink.types`` maps fields to types, for example
    ``{"price": "float"}``. Requires ``pip install heronry[archive]``.
    """

    suffix = ".parquet"
    options = (_GIVEN,)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing or invalid option."""
        yield from super().config_problems(config)
        if _GIVEN.problem(config) is None:
            for name, kind in _GIVEN.of(config).items():
                if kind not in TYPES:
                    yield f"config {_GIVEN.key!r} gives field {name!r} the type {kind!r}; there are {', '.join(TYPES)}"

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Check the configuration, and open the spool folder. Raises BadConfig, ConnectError."""
        super().initialize(config, context)
        self._arrow, self._parquet = arrow_driver("ParquetSink", "archive")
        self._types: dict[str, str] = dict(_GIVEN.of(config))
        self._fields: tuple[str, ...] = ()
        self._columns: list[list[Any]] = []
        self._writer: Any = None

    def process(self, tup: Tuple) -> None:
        """Add a tuple as a row.

        Raises:
            ConnectError: Parquet cannot represent a value, or the file cannot be written.
        """
        if not self._fields:
            self._fields = tup.fields
            self._columns = [[] for _ in tup.fields]
        elif tup.fields != self._fields:
            raise ConnectError(
                f"ParquetSink: a tuple of {tup.component!r} has the fields {', '.join(tup.fields)}, and others have "
                f"{', '.join(self._fields)}: use a separate sink for each kind of tuple"
            )
        row = [self._fitting(name, value) for name, value in zip(tup.fields, tup.values, strict=True)]
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        if len(self._columns[0]) >= ROWS_A_GROUP:
            with self.writing() as file:
                self._write_group(file)

    def prepare(self, checkpoint: Checkpoint) -> str | None:
        """Flush the rows to disk under a hidden name. Raises ConnectError."""
        if self._columns and self._columns[0]:
            with self.writing() as file:
                self._write_group(file)
        return super().prepare(checkpoint)

    def finish(self, file: BinaryIO) -> None:
        """Write the footer."""
        self._writer.close()
        self._writer = None

    def close(self) -> None:
        """Discard rows that are not prepared."""
        self._writer = None
        super().close()

    def _fitting(self, name: str, value: Any) -> Any:
        if value is None:
            return None
        kind = type(value).__name__
        wanted = self._types.get(name)
        if wanted is None:
            if kind not in TYPES:
                raise cannot_hold(self, name, value, f"and this sink holds {', '.join(TYPES)} and None")
            wanted = self._types[name] = kind
        if kind == "int" and wanted == "float" and abs(value) <= 2**53:
            return float(value)
        if kind != wanted:
            raise cannot_hold(self, name, value, f"and the field holds {wanted} (config {_GIVEN.key!r} can say which)")
        if kind == "int" and not -(2**63) <= value < 2**63:
            raise cannot_hold(self, name, value, "and integers have 64 bits")
        if kind == "str" and any("\ud800" <= sign <= "\udfff" for sign in value):
            raise cannot_hold(self, name, value, "which UTF-8 cannot encode")
        return value

    def _write_group(self, file: BinaryIO) -> None:
        pa = self._arrow
        if self._writer is None:
            self._schema = pa.schema([(name, self._arrow_type(name)) for name in self._fields])
            self._writer = self._parquet.ParquetWriter(file, self._schema)
        late = [n for n in self._fields if n in self._types and self._schema.field(n).type == pa.null()]
        if late:
            raise ConnectError(
                f"ParquetSink: field {late[0]!r} was None in the first {ROWS_A_GROUP} rows of a file, so its type was "
                f"not known: give it, config {_GIVEN.key!r}"
            )
        arrays = [
            pa.array(column, type=self._schema.field(n).type)
            for n, column in zip(self._fields, self._columns, strict=True)
        ]
        self._columns = [[] for _ in self._fields]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def _arrow_type(self, name: str) -> Any:
        given = self._types.get(name)
        return self._arrow.null() if given is None else getattr(self._arrow, TYPES[given])()
