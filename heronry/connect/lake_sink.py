"""Base class of sinks for lake tables.

Rows are spooled as Parquet files (``spool.py``), one for each partition (``lake_parts.py``), and added to the table
with their checkpoint (``lake.py``). A subclass for a table format defines how a table is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from heronry.api.state import Checkpoint
from heronry.api.tuples import Tuple
from heronry.connect.lake import STAGED, Shape, Table, Waiting, add_once, data_name, writer_name
from heronry.connect.lake_parts import WHOLE, Partitions, Parts, Place, Unfit, stored, token_in
from heronry.connect.marks import TOKEN
from heronry.connect.seats import Seat
from heronry.connect.settings import BadConfig, ConnectError, Option, whole
from heronry.connect.spool import SpoolSink, cannot_hold

ROWS_A_GROUP = 32_768


class LakeSink(SpoolSink):
    """Base class of sinks for lake tables.

    Subclasses set ``folder_option`` (which names the table), ``extra``, ``attempts_option`` and ``partitions_option``,
    and implement ``table_of``.
    """

    suffix = ".parquet"
    extra: ClassVar[str]
    attempts_option: ClassVar[Option]
    partitions_option: ClassVar[Option]

    @classmethod
    def table_of(cls, config: Mapping[str, Any]) -> Table:
        """Open the table in its present state. Raises ConnectError, also for a table that cannot be written."""
        raise NotImplementedError(f"{cls.__name__} has no table_of(cls, config)")

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Open the sink, and check that the input's fields fit the table.

        Raises:
            BadConfig: An option is missing or invalid, or the fields do not fit.
            ConnectError: The table cannot be opened.
        """
        super().initialize(config, context)
        for source in context.get_sources():
            self._check(context.get_fields(*source))

    def open(self, config: dict[str, Any], seat: Seat) -> None:
        """Open the table and its staging folder.

        Raises:
            BadConfig: The fields do not fit the table.
            ConnectError: The table or its staging folder cannot be written.
        """
        self._config = dict(config)
        self._open_table = partial(self.table_of, self._config)
        self._tries = self.attempts_option.of(config)
        table = self._open_table()
        self._root = table.root
        self._shape, self._partitions = Shape(table.schema, table.name), table.partitions
        self._most = self.partitions_option.of(config)
        if seat.fields:
            self._check(seat.fields)
        super().open(config, seat)
        self._fields = seat.fields
        self._own_name = f"{seat.step} {seat.life}"
        self._signs = seat.writer or self._own_name
        self._rows: dict[Place, list[list[Any]]] = {}  # rows of this checkpoint, by partition
        self._waiting_rows = 0
        self._parts: Parts | None = None

    def _check(self, fields: Iterable[str]) -> None:
        problem = self._shape.problem(fields)
        if problem:
            self.close()
            raise BadConfig(f"{type(self).__name__}: {problem}")

    def spool_folder(self, config: dict[str, Any]) -> Path:
        """Return the staging folder below the table, which its readers ignore."""
        return self._root / STAGED

    @classmethod
    def encoder(cls, config: Mapping[str, Any], fields: Sequence[str]) -> Callable[[Sequence[Any]], Any]:
        """Return a function that checks values against the present table and returns them."""
        table = cls.table_of(config)
        return partial(_fitting, cls, Shape(table.schema, table.name), table.partitions, tuple(fields))

    def take(self, encoded: Sequence[Any]) -> None:
        """Add a row. Raises ConnectError if the table cannot hold it, or the file cannot be written."""
        self._add(self._fields, encoded)

    def process(self, tup: Tuple) -> None:
        """Add a tuple as a row. Raises ConnectError if the table cannot hold it, or the file cannot be written."""
        self._add(tup.fields, tup.values)

    def _add(self, fields: Sequence[str], values: Sequence[Any]) -> None:
        place, row = _row(type(self), self._shape, self._partitions, fields, values)
        rows = self._rows.get(place)
        if rows is None:
            self._one_more_partition()
            rows = self._rows[place] = []
        rows.append(row)
        self._waiting_rows += 1
        if self._waiting_rows >= ROWS_A_GROUP:
            self._write_groups()

    def _one_more_partition(self) -> None:
        if self._partitions is not None and len(self._rows) >= self._most:
            raise ConnectError(
                f"{type(self).__name__}: a task's rows of one checkpoint lie in more than {self._most} partitions (by "
                f"{self._partitions.by}), and each is a file: group the input by these columns so that a task has few "
                "of them, checkpoint more often, let the table have coarser partitions, or raise config "
                f"{self.partitions_option.key!r}"
            )

    def prepare(self, checkpoint: Checkpoint) -> str | None:
        """Flush the rows to disk under hidden names. Raises ConnectError."""
        self._signed = writer_name(self._signs, checkpoint.name.split("-")[2])
        self._named = self._hidden(checkpoint.name)
        if self._waiting_rows:
            self._write_groups()
        return super().prepare(checkpoint)

    def begin(self, file: BinaryIO) -> None:
        """Start the files of a checkpoint. Rows are written to them in groups."""
        partitions = self._partitions
        by = partitions.by if partitions else ""
        self._parts = Parts(file, self._open_path, stored(self._shape.schema, partitions), by)

    def finish(self, file: BinaryIO) -> None:
        """Write the footer with the writer's name and the list of files."""
        assert self._parts is not None
        self._parts.finish(self._signed, self._named)
        self._parts, self._rows = None, {}

    def prepared(self) -> list[str]:
        """Return the tokens of the staged files, including incomplete sets of files."""
        tokens = map(token_in, self.middles(".", self.suffix))
        return [token for token in dict.fromkeys(tokens) if TOKEN.fullmatch(token)]

    def abort(self, token: str) -> None:
        """Discard all staged files of ``token``. Idempotent."""
        super().abort(token)
        for middle in list(self.middles(".", self.suffix)):
            if token_in(middle) == token:
                self._hidden(middle).unlink(missing_ok=True)

    def publish(self, hidden: Path, whole: Path) -> None:
        """Add the staged files to the table exactly once. Raises FileNotFoundError, ConnectError."""
        token = whole.name.removeprefix(f"{self._step}-").removesuffix(self.suffix)
        add_once(self._open_table, [self._waiting(token)], self._tries)

    def commit_all(self, tokens: Sequence[str]) -> None:
        """Commit several tokens with one commit of the table. Raises ConnectError."""
        here = [token for token in tokens if self._hidden(token).exists()]
        for token in tokens:
            if token not in here:
                self.commit(0, token)  # committed before, or lost: fail before marking others
        try:
            if here:
                self._check_is_last(here)
            for token in here:
                self._marks.leave(token)
            if here:
                add_once(self._open_table, list(map(self._waiting, here)), self._tries)
        except OSError as error:
            raise ConnectError(
                f"{type(self).__name__}: what is staged in {self._folder} cannot be committed ({error.strerror}): see "
                "to that folder"
            ) from error

    def _check_is_last(self, tokens: Sequence[str]) -> None:
        """Check that a stream has not committed a later micro-batch.

        A stream has one mark for all its micro-batches, so rows of an earlier one would count as present already.

        Raises:
            ConnectError: The table has rows of a later micro-batch.
        """
        mark = self._open_table().committed(writer_name(self._signs, tokens[0].split("-")[2]))
        if self._signs != self._own_name and mark > max(int(token.split("-")[1]) for token in tokens):
            raise ConnectError(
                f"{type(self).__name__}: the table has rows of a later micro-batch than this one, so what the stream "
                "keeps (CHECKPOINT) is older than the table: bring back the one that belongs to it, or name another "
                "--checkpoint and an empty table, for all input is read again then"
            )

    def _waiting(self, token: str) -> Waiting:
        return Waiting(self._hidden(token), data_name(self._step, token), int(token.split("-")[1]))

    def close(self) -> None:
        """Discard rows that are not prepared."""
        parts: Parts | None = getattr(self, "_parts", None)
        if parts is not None:
            parts.drop()
        super().close()

    def _write_groups(self) -> None:
        with self.writing():
            assert self._parts is not None
            for place, rows in self._rows.items():
                if rows:
                    self._parts.write(place, self._shape.table(rows))
                    rows.clear()
        self._waiting_rows = 0


def _fitting(
    sink: type, shape: Shape, partitions: Partitions | None, fields: Sequence[str], values: Sequence[Any]
) -> Sequence[Any]:
    _row(sink, shape, partitions, fields, values)
    return values


def _row(
    sink: type, shape: Shape, partitions: Partitions | None, fields: Sequence[str], values: Sequence[Any]
) -> tuple[Place, list[Any]]:
    """Return the partition of a record, and its values in the order of the columns. Raises ConnectError."""
    try:
        row = shape.row(dict(zip(fields, values, strict=True)))
        return WHOLE if partitions is None else partitions.place(row), row
    except Unfit as error:
        if error.field:
            raise cannot_hold(sink, error.field, error.value, f"and {error.why}") from None
        raise ConnectError(f"{sink.__name__}: {error}") from None


def attempts_of(system: str) -> Option:
    """Return the option for the number of attempts of a commit."""
    return whole(f"user.{system}.attempts", "attempts of a commit when others write at the same time", 6)


def partitions_of(system: str) -> Option:
    """Return the option for the number of files that a checkpoint of a task may have."""
    what = "limit of the partitions that one checkpoint of a task writes, one file each"
    return whole(f"user.{system}.partitions", what, 256)
