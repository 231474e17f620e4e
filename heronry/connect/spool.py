"""Spool folder with one file for each checkpoint and task, hidden until it is committed.

::

    .STEP-open-TASK-x    rows while they arrive  discarded when the task dies
    .STEP-TOKEN          prepared                on disk (file and folder) before the checkpoint can be complete
    STEP-TOKEN           committed               visible to readers
    .STEP-done-ID-TOKEN  mark of the commit      lets a repeated commit detect that it was done

Each transition is a rename within one folder, so readers see only whole files of complete checkpoints. The mark
(``marks.py``) is written before the rename, because readers may remove the file immediately. As long as the hidden file
exists, it takes precedence over the mark.

A failed write, as on a full disk, raises: the checkpoint is abandoned, and the sources replay the records. A file is
never prepared after a failed write, because its content on disk is unknown.

All tasks of the component must use the same folder, wherever they run: another host may commit after a fault.

A batch that is posted to another system is a file in the spool folder until then, so it survives its task. Commit posts
the batch with a key that is the same for each attempt. After a fault, the same bytes are posted again with the same
key. So each batch takes effect once if the other system recognises keys. An empty file ``….sent`` records that a batch
was posted.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from heron_runtime.files import sync_folder
from heronry.api.state import Checkpoint
from heronry.api.tuples import Tuple
from heronry.connect.marks import TOKEN, Marks
from heronry.connect.seats import Seat, SeatedSink
from heronry.connect.settings import ConnectError, Option, problems, text


class SpoolSink(SeatedSink):
    """Base class of sinks that write files. Subclasses set ``suffix`` and implement ``encode``."""

    suffix: ClassVar[str] = ""
    folder_option: ClassVar[Option] = text("user.sink.folder", "the folder it writes into", required=True)
    options: ClassVar[tuple[Option, ...]] = ()  # in addition to the folder

    @classmethod
    def settings(cls) -> set[str]:
        """Return the keys of the sink's options."""
        return {cls.folder_option.key, *super().settings()}

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing or invalid option."""
        yield from problems((cls.folder_option, *cls.options), config)

    def open(self, config: dict[str, Any], seat: Seat) -> None:
        """Create the folder, check that it is writable, and remove open files of dead tasks.

        Raises:
            ConnectError: The folder cannot be written.
        """
        self._folder = self.spool_folder(config)
        self._step, self._task = seat.step, seat.task
        self._marks = Marks(self._folder, self._step, seat.life)
        self._file: BinaryIO | None = None
        self._broken: OSError | None = None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._open_path = self._folder / f".{self._step}-open-{self._task}-{secrets.token_hex(8)}{self.suffix}"
            self._open_path.touch(exist_ok=False)
            self._open_path.unlink()
            if seat.tasks is not None:
                self._sweep_open(seat.tasks)
        except OSError as error:
            raise ConnectError(
                f"{type(self).__name__} cannot write into {self._folder} ({error.strerror}): make it a folder that "
                "the user that the topology's code runs as may write into, or name another in "
                f"config {self.folder_option.key!r}"
            ) from error

    def spool_folder(self, config: dict[str, Any]) -> Path:
        """Return the folder to write into."""
        return Path(self.folder_option.of(config))

    def process(self, tup: Tuple) -> None:
        """Write a tuple. Raises ConnectError if the format cannot represent it, or the file cannot be written."""
        if self._broken is not None:
            raise self._cannot_write(self._broken)
        try:
            data = self.encode(tup)
            self.opened().write(data)
        except OSError as error:
            self._broken = error
            raise self._cannot_write(error) from error

    def take(self, encoded: Any) -> None:
        """Write an encoded tuple. Raises ConnectError."""
        with self.writing() as file:
            file.write(encoded)

    def encode(self, tup: Tuple) -> bytes:
        """Return the bytes to write for a tuple. Raises ConnectError."""
        raise NotImplementedError(f"{type(self).__name__} has no encode(self, tup)")

    def begin(self, file: BinaryIO) -> None:
        """Write the beginning of a file. The default writes nothing."""

    def finish(self, file: BinaryIO) -> None:
        """Write the end of a file. The default writes nothing."""

    def opened(self) -> BinaryIO:
        """Return the current file, and open it if necessary."""
        if self._file is None:
            self._file = self._open_path.open("w+b", buffering=256 * 1024)
            self.begin(self._file)
        return self._file

    def prepare(self, checkpoint: Checkpoint) -> str | None:
        """Flush the current file to disk under a hidden name.

        Returns:
            The token, or None if nothing was written.

        Raises:
            ConnectError: The file cannot be written.
        """
        if self._file is None and self._broken is None:
            return None
        with self.writing() as file:
            self.finish(file)
            file.flush()
            os.fsync(file.fileno())
            os.replace(self._open_path, self._hidden(checkpoint.name))
            sync_folder(self._folder)
            file.close()
        self._file = None
        return checkpoint.name

    def commit(self, checkpoint: int, token: str) -> None:
        """Publish the file of ``token``. Idempotent. Raises ConnectError."""
        hidden, whole = self._hidden(token), self._whole(token)
        try:
            if hidden.exists():
                self._marks.leave(token)
            self.publish(hidden, whole)
            sync_folder(self._folder)
        except FileNotFoundError:
            if not whole.exists() and not self._marks.has(token):
                raise ConnectError(
                    f"{hidden} was prepared for checkpoint {checkpoint}, is missing, and was never committed: give all "
                    f"hosts the same {self._folder}, and let no other program remove hidden files there"
                ) from None
        except OSError as error:
            raise ConnectError(f"{hidden} cannot be committed ({error.strerror}): check its folder") from error

    def publish(self, hidden: Path, whole: Path) -> None:
        """Make a prepared file visible as ``whole``. Raises FileNotFoundError if ``hidden`` does not exist."""
        os.replace(hidden, whole)

    def abort(self, token: str) -> None:
        """Discard the prepared file of ``token``. Idempotent."""
        self._hidden(token).unlink(missing_ok=True)

    def prepared(self) -> list[str]:
        """Return the tokens of the component's hidden files."""
        return [token for token in self.middles(".", self.suffix) if TOKEN.fullmatch(token)]

    def forget(self) -> None:
        """Remove all files of the step, including marks and committed files. Raises ConnectError."""
        try:
            for name in os.listdir(self._folder):
                if name.startswith((f".{self._step}-", f"{self._step}-")):
                    (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise self._cannot_write(error) from error

    def close(self) -> None:
        """Discard tuples that are not prepared."""
        file: BinaryIO | None = getattr(self, "_file", None)
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
            self._open_path.unlink(missing_ok=True)

    def middles(self, begin: str, suffix: str) -> Iterator[str]:
        """Yield the parts between step and suffix of the file names in the folder."""
        begin = f"{begin}{self._step}-"
        for name in os.listdir(self._folder):
            if name.startswith(begin) and name.endswith(suffix):
                yield name.removeprefix(begin).removesuffix(suffix)

    def _sweep_open(self, tasks: frozenset[int]) -> None:
        """Remove open files of this task, and of tasks that no longer exist."""
        for middle in self.middles(".", self.suffix):
            word, _, rest = middle.partition("-")
            task, _, _ = rest.partition("-")
            if word == "open" and task.isdecimal() and (int(task) == self._task or int(task) not in tasks):
                (self._folder / f".{self._step}-{middle}{self.suffix}").unlink(missing_ok=True)

    @contextlib.contextmanager
    def writing(self) -> Iterator[BinaryIO]:
        """Provide the current file. After an OSError, this and all later calls raise ConnectError."""
        if self._broken is not None:
            raise self._cannot_write(self._broken)
        try:
            yield self.opened()
        except OSError as error:
            self._broken = error
            raise self._cannot_write(error) from error

    def _cannot_write(self, error: OSError) -> ConnectError:
        return ConnectError(
            f"{type(self).__name__} cannot write into {self._folder} ({error.strerror or error}): make room there; the "
            "topology continues from its last checkpoint, nothing is lost"
        )

    def _hidden(self, token: str) -> Path:
        return self._folder / f".{self._step}-{token}{self.suffix}"

    def _whole(self, token: str) -> Path:
        return self._folder / f"{self._step}-{token}{self.suffix}"


def cannot_hold(sink: object, field: str, value: object, why: str) -> ConnectError:
    """Return the error for a value that a format cannot represent.

    Args:
        sink: The sink or its class.
        field: Name of the field.
        value: The value.
        why: The reason, as the continuation of a sentence.
    """
    kind = sink if isinstance(sink, type) else type(sink)
    return ConnectError(
        f"{kind.__name__}: field {field!r} is {value!r:.60} ({type(value).__name__}), {why}: change it in a bolt, or "
        "a map, before the sink"
    )


KEPT_CHECKPOINTS = 1000  # checkpoints whose records of posted batches are kept, for each task


class PostingSink(SpoolSink):
    """Base class of sinks that post batches. Subclasses implement ``post``."""

    def open(self, config: dict[str, Any], seat: Seat) -> None:
        """Open the spool folder and remove old records of posted batches. Raises BadConfig, ConnectError."""
        super().open(config, seat)
        self._forget_sent()

    def post(self, batch: Path, key: str) -> None:
        """Post a batch.

        Args:
            batch: File of the batch.
            key: Idempotency key, the same for each attempt.

        Raises:
            ConnectError: The other system did not accept the batch.
            FileNotFoundError: Another process has committed the batch.
        """
        raise NotImplementedError(f"{type(self).__name__} has no post(self, batch, key)")

    def publish(self, hidden: Path, whole: Path) -> None:
        """Post a batch and record that. Raises ConnectError, FileNotFoundError."""
        self.post(hidden, whole.stem)
        os.replace(hidden, whole)  # before truncation, so that a hidden file is always complete

        os.truncate(whole, 0)

    def _whole(self, token: str) -> Path:
        return self._folder / f"{self._step}-{token}.sent"

    def _forget_sent(self) -> None:
        """Remove the records of batches that were posted more than KEPT_CHECKPOINTS checkpoints ago."""
        sent: dict[str, list[tuple[int, str]]] = {}
        for token in filter(TOKEN.fullmatch, self.middles("", ".sent")):
            _, number, task, _ = token.split("-")
            sent.setdefault(task, []).append((int(number), token))
        for done in sent.values():
            newest = max(done)[0]
            for at, token in done:
                if at < newest - KEPT_CHECKPOINTS:
                    self._whole(token).unlink(missing_ok=True)


def safe_in(folder: Path) -> str:
    """Return the sentence of an error message that says where a batch that was not posted is kept."""
    return f"The batch is safe in {folder} and is posted again once the topology continues: check the server"
