"""One file for each checkpoint and task, hidden until it is committed.

::

    .STEP-open-TASK-x    rows as they come       dies with its task: nothing of it counts
    .STEP-TOKEN          prepared                on disk (file and folder) before the checkpoint can be complete
    STEP-TOKEN           committed               what readers see
    .STEP-done-ID-TOKEN  the mark of that        by it, or by the file, a second commit knows that it is one

Each arrow is a rename within one folder, so readers see whole files of complete checkpoints only. The mark
(``marks.py``) is there before the rename: readers may take the file away at once, and as long as the hidden file is
there it is that which counts. A write that fails,
as on a full disk, raises: the checkpoint is given up, and the sources bring the records again. A file whose write has
failed is never prepared, for nobody can say what of it is on disk.

The folder must be the same for all tasks of the component, wherever they run: after a fault another host may commit.
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
    """The base of sinks that write files. Derive, set ``suffix``, write ``encode``."""

    suffix: ClassVar[str] = ""
    folder_option: ClassVar[Option] = text("user.sink.folder", "the folder it writes into", required=True)
    options: ClassVar[tuple[Option, ...]] = ()  # besides the folder

    @classmethod
    def settings(cls) -> set[str]:
        """The keys of its configuration."""
        return {cls.folder_option.key, *super().settings()}

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """What is missing or wrong."""
        yield from problems((cls.folder_option, *cls.options), config)

    def open(self, config: dict[str, Any], seat: Seat) -> None:
        """Raises BadConfig, ConnectError."""
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
        """Where it writes."""
        return Path(self.folder_option.of(config))

    def process(self, tup: Tuple) -> None:
        """Take it. Raises ConnectError for what the format cannot hold, and when it cannot be written."""
        if self._broken is not None:
            raise self._cannot_write(self._broken)
        try:
            data = self.encode(tup)
            self.opened().write(data)
        except OSError as error:
            self._broken = error
            raise self._cannot_write(error) from error

    def take(self, encoded: Any) -> None:
        """Write what was encoded. Raises ConnectError."""
        with self.writing() as file:
            file.write(encoded)

    def encode(self, tup: Tuple) -> bytes:
        """What is written for it. Raises ConnectError."""
        raise NotImplementedError(f"{type(self).__name__} has no encode(self, tup)")

    def begin(self, file: BinaryIO) -> None:
        """A file begins."""

    def finish(self, file: BinaryIO) -> None:
        """It ends."""

    def opened(self) -> BinaryIO:
        """The file that is written now."""
        if self._file is None:
            self._file = self._open_path.open("w+b", buffering=256 * 1024)
            self.begin(self._file)
        return self._file

    def prepare(self, checkpoint: Checkpoint) -> str | None:
        """The rows are on disk, under a hidden name. Raises ConnectError."""
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
        """The file has its name; a second time changes nothing. Raises ConnectError."""
        hidden, whole = self._hidden(token), self._whole(token)
        try:
            if hidden.exists():
                self._marks.leave(token)
            self.publish(hidden, whole)
            sync_folder(self._folder)
        except FileNotFoundError:
            if not whole.exists() and not self._marks.has(token):
                raise ConnectError(
                    f"{hidden} was prepared for checkpoint {checkpoint} and is gone, and was never committed: give all "
                    f"hosts the same {self._folder}, and let nobody else remove hidden files there"
                ) from None
        except OSError as error:
            raise ConnectError(f"{hidden} cannot be committed ({error.strerror}): see to its folder") from error

    def publish(self, hidden: Path, whole: Path) -> None:
        """What was prepared takes effect, and ``whole`` is there. Raises FileNotFoundError if nothing is there to be
        committed."""
        os.replace(hidden, whole)

    def abort(self, token: str) -> None:
        """It was never seen."""
        self._hidden(token).unlink(missing_ok=True)

    def prepared(self) -> list[str]:
        """The tokens of the hidden files of this component."""
        return [token for token in self.middles(".", self.suffix) if TOKEN.fullmatch(token)]

    def forget(self) -> None:
        """Remove what is hidden here of the step, and what tells that something was committed. Raises ConnectError."""
        try:
            for name in os.listdir(self._folder):
                if name.startswith((f".{self._step}-", f"{self._step}-")):
                    (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise self._cannot_write(error) from error

    def close(self) -> None:
        """What was not prepared is not kept."""
        file: BinaryIO | None = getattr(self, "_file", None)
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
            self._open_path.unlink(missing_ok=True)

    def middles(self, begin: str, suffix: str) -> Iterator[str]:
        """What stands between the step and the suffix in names of the folder."""
        begin = f"{begin}{self._step}-"
        for name in os.listdir(self._folder):
            if name.startswith(begin) and name.endswith(suffix):
                yield name.removeprefix(begin).removesuffix(suffix)

    def _sweep_open(self, tasks: frozenset[int]) -> None:
        """Remove what died with this task, and with tasks there are no more."""
        for middle in self.middles(".", self.suffix):
            word, _, rest = middle.partition("-")
            task, _, _ = rest.partition("-")
            if word == "open" and task.isdecimal() and (int(task) == self._task or int(task) not in tasks):
                (self._folder / f".{self._step}-{middle}{self.suffix}").unlink(missing_ok=True)

    @contextlib.contextmanager
    def writing(self) -> Iterator[BinaryIO]:
        """The file that is written now. What it raises is a ConnectError, now and from now on."""
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
            "topology goes on from its last checkpoint, nothing is lost"
        )

    def _hidden(self, token: str) -> Path:
        return self._folder / f".{self._step}-{token}{self.suffix}"

    def _whole(self, token: str) -> Path:
        return self._folder / f"{self._step}-{token}{self.suffix}"


def cannot_hold(sink: object, field: str, value: object, why: str) -> ConnectError:
    """The error for a value that a format has no place for; ``sink``: the sink, or its class."""
    kind = sink if isinstance(sink, type) else type(sink)
    return ConnectError(
        f"{kind.__name__}: field {field!r} is {value!r:.60} ({type(value).__name__}), {why}: change it in a bolt, or "
        "a map, before the sink"
    )
