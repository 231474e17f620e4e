"""The base of sinks of tables of lakes: rows are spooled as Parquet (``spool.py``), and added to the table with their
checkpoint (``lake.py``). What a format has of its own is how a table is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from heronry.api.state import Checkpoint
from heronry.api.tuples import Tuple
from heronry.connect.drivers import arrow_driver
from heronry.connect.lake import (
    COMPRESSION,
    STAGED,
    WRITER,
    Shape,
    Table,
    Unfit,
    Waiting,
    add_once,
    data_name,
    writer_name,
)
from heronry.connect.seats import Seat
from heronry.connect.settings import BadConfig, ConnectError, Option, whole
from heronry.connect.spool import SpoolSink, cannot_hold

ROWS_A_GROUP = 32_768


class LakeSink(SpoolSink):
    """Derive; say ``folder_option`` (which table), ``extra`` and ``attempts_option``, write ``table_of``."""

    suffix = ".parquet"
    extra: ClassVar[str]
    attempts_option: ClassVar[Option]

    @classmethod
    def table_of(cls, config: Mapping[str, Any]) -> Table:
        """As it is now. Raises ConnectError, also for one that cannot be written."""
        raise NotImplementedError(f"{cls.__name__} has no table_of(cls, config)")

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Raises BadConfig, ConnectError."""
        super().initialize(config, context)
        for source in context.get_sources():
            self._check(context.get_fields(*source))

    def open(self, config: dict[str, Any], seat: Seat) -> None:
        """Raises BadConfig, ConnectError."""
        self._config = dict(config)
        self._open_table = partial(self.table_of, self._config)
        self._tries = self.attempts_option.of(config)
        table = self._open_table()
        self._root = table.root
        self._shape = Shape(table.schema, table.name)
        if seat.fields:
            self._check(seat.fields)
        super().open(config, seat)
        self._fields = seat.fields
        self._life = seat.life
        self._rows: list[list[Any]] = []
        self._writer: Any = None

    def _check(self, fields: Iterable[str]) -> None:
        problem = self._shape.problem(fields)
        if problem:
            self.close()
            raise BadConfig(f"{type(self).__name__}: {problem}")

    def spool_folder(self, config: dict[str, Any]) -> Path:
        """Below the table, out of its readers' sight."""
        return self._root / STAGED

    @classmethod
    def encoder(cls, config: Mapping[str, Any], fields: Sequence[str]) -> Callable[[Sequence[Any]], Any]:
        """Of values that fit the table as it is now."""
        table = cls.table_of(config)
        return partial(_fitting, cls, Shape(table.schema, table.name), tuple(fields))

    def take(self, encoded: Sequence[Any]) -> None:
        """Raises ConnectError for what the table cannot hold, and when it cannot be written."""
        self._add(self._fields, encoded)

    def process(self, tup: Tuple) -> None:
        """The same of a tuple."""
        self._add(tup.fields, tup.values)

    def _add(self, fields: Sequence[str], values: Sequence[Any]) -> None:
        self._rows.append(_row(type(self), self._shape, fields, values))
        if len(self._rows) >= ROWS_A_GROUP:
            self._write_group()

    def prepare(self, checkpoint: Checkpoint) -> str | None:
        """The rows are on disk, under a hidden name. Raises ConnectError."""
        self._signed = writer_name(self._step, self._life, checkpoint.name.split("-")[2])
        if self._rows:
            self._write_group()
        return super().prepare(checkpoint)

    def begin(self, file: BinaryIO) -> None:
        """Rows are written in groups."""
        _, parquet = arrow_driver(type(self).__name__, self.extra)
        self._writer = parquet.ParquetWriter(file, self._shape.schema, compression=COMPRESSION)

    def finish(self, file: BinaryIO) -> None:
        """The footer, which says whose rows they are."""
        self._writer.add_key_value_metadata({WRITER: self._signed})
        self._writer.close()
        self._writer = None

    def publish(self, hidden: Path, whole: Path) -> None:
        """Add it to the table, once. Raises FileNotFoundError, ConnectError."""
        token = whole.name.removeprefix(f"{self._step}-").removesuffix(self.suffix)
        add_once(self._open_table, [self._waiting(token)], self._tries)

    def commit_all(self, tokens: Sequence[str]) -> None:
        """With one commit of the table. Raises ConnectError."""
        here = [token for token in tokens if self._hidden(token).exists()]
        for token in tokens:
            if token not in here:
                self.commit(0, token)  # it was before, or is lost: said before any other is marked
        try:
            for token in here:
                self._marks.leave(token)
            if here:
                add_once(self._open_table, list(map(self._waiting, here)), self._tries)
        except OSError as error:
            raise ConnectError(
                f"{type(self).__name__}: what is staged in {self._folder} cannot be committed ({error.strerror}): see "
                "to that folder"
            ) from error

    def _waiting(self, token: str) -> Waiting:
        whole = self._root / data_name(self._step, token)
        return Waiting(self._hidden(token), whole, int(token.split("-")[1]))

    def close(self) -> None:
        """What was not prepared is not kept."""
        self._writer = None
        super().close()

    def _write_group(self) -> None:
        rows, self._rows = self._rows, []
        with self.writing():
            self._writer.write_table(self._shape.table(rows))


def _fitting(sink: type, shape: Shape, fields: Sequence[str], values: Sequence[Any]) -> Sequence[Any]:
    _row(sink, shape, fields, values)
    return values


def _row(sink: type, shape: Shape, fields: Sequence[str], values: Sequence[Any]) -> list[Any]:
    """In the order of the columns. Raises ConnectError."""
    try:
        return shape.row(dict(zip(fields, values, strict=True)))
    except Unfit as error:
        if error.field:
            raise cannot_hold(sink, error.field, error.value, f"and {error.why}") from None
        raise ConnectError(f"{sink.__name__}: {error}") from None


def attempts_of(system: str) -> Option:
    """How often a sink tries."""
    return whole(f"user.{system}.attempts", "how often a commit is tried when others write at the same time", 6)
