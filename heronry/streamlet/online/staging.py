"""Staging of files of one step in one task, which become visible to readers when their checkpoint is complete.

The protocol is that of ``connect/spool.py``, for any number of files in a token::

    .STEP-open-INDEX-x/…    being written           discarded when its task dies
    .STEP-TOKEN/…           prepared                on disk before the checkpoint can be complete
    …                       committed               each moved to the same place below the root
    .STEP-done-LIFE-TOKEN/  commit mark             the emptied folder of the task's last token, renamed

The root must be the same for all tasks of the component, because after a fault another task may commit. A repeated
commit moves the remaining files, or finds the mark. If it finds neither, output that a checkpoint names is lost, or is
on another host. That is an error (``connect/marks.py``).
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from heron_runtime.files import sync_folder
from heronry.connect.marks import MARK, TOKEN, Marks, OutputIsGone


class StagingFolder:
    """Staged files of one task of a step, below ``root``.

    The task is number ``index`` of ``of``, in this ``life`` of the topology. All methods may raise OSError.
    """

    def __init__(self, root: Path, step: str, index: int, of: int, life: int) -> None:
        self.root = root
        self._step = step
        self._names = Marks(root, step, str(life))
        self._open = root / f".{step}-open-{index}-{secrets.token_hex(8)}"
        self._made: set[Path] = set()
        middles = list(self._names.middles())  # listed only once: other tasks continue to commit
        last = self._names.last(middles)
        self._marks = {task: self._hidden(middle) for task, (_, middle) in last.items()}
        for middle in middles:
            word, _, rest = middle.partition("-")
            task, _, _ = rest.partition("-")
            died = word == "open" and task.isdecimal() and (int(task) == index or int(task) >= of)
            mark = MARK.fullmatch(middle)
            passed = mark is not None and mark[1].isdecimal() and int(mark[1]) <= life
            over = passed and self._hidden(middle) not in self._marks.values()
            if died or over:  # its process died; its life is over, or a later mark exists
                shutil.rmtree(self._hidden(middle), ignore_errors=True)

    def file(self, place: str | Path) -> Path:
        """Return the path to write the file that will be at this place below the root."""
        path = self._open / place
        if path.parent not in self._made:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._made.add(path.parent)
        return path

    def prepare(self, token: str) -> bool:
        """Persist the written files under the token.

        Returns:
            False if no files were written.
        """
        if not self._made:
            return False
        for place, _, names in os.walk(self._open):
            for name in names:
                with open(Path(place, name), "rb") as file:
                    os.fsync(file.fileno())
            sync_folder(Path(place))
        os.rename(self._open, self._hidden(token))
        sync_folder(self.root)
        self._made.clear()
        return True

    def commit(self, token: str, certain: bool = False) -> None:
        """Move the files of a token into place.

        Marks for readers, whose names begin with ``_``, are moved last.

        Args:
            token: Token of the checkpoint.
            certain: True if files are known to have been prepared under this token, in this life.

        Raises:
            OutputIsGone: Files are certain to have been prepared, and are neither here nor marked as committed.
        """
        hidden = self._hidden(token)
        if not hidden.is_dir():
            if certain:
                self._look_for_mark(token)
            return
        paths = [Path(place, name) for place, _, names in os.walk(hidden) for name in names]
        for path in sorted(paths, key=lambda path: (path.name.startswith("_"), path)):
            target = self.root / path.relative_to(hidden)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
            sync_folder(target.parent)
        if certain:
            self._mark(hidden, token)
        else:
            shutil.rmtree(hidden, ignore_errors=True)

    def _mark(self, hidden: Path, token: str) -> None:
        """Turn the token's folder, now without files, into the mark. One mark per task is sufficient."""
        task = int(token.split("-")[2])
        mark = self._names.path(token)
        os.rename(hidden, mark)
        sync_folder(self.root)
        before = self._marks.get(task)
        self._marks[task] = mark
        for leftover in (*mark.iterdir(), *([before] if before is not None else [])):
            shutil.rmtree(leftover, ignore_errors=True)

    def _look_for_mark(self, token: str) -> None:
        _, number, task, _ = token.split("-")
        if not self._names.has(token):
            raise OutputIsGone(
                f"step {self._step!r}: what task {task} has written for checkpoint {number} is not in {self.root}, "
                f"neither waiting ({self._hidden(token).name}) nor marked as committed: give all hosts of the topology "
                f"the same {self.root}, and let no other program remove hidden files there; if it is on another host, "
                "move it here, then heron restore; if it is lost, heron restore to an older checkpoint with "
                "--repeat-output writes it again"
            )

    def abort(self, token: str) -> None:
        """Discard the files prepared under a token."""
        shutil.rmtree(self._hidden(token), ignore_errors=True)

    def prepared(self) -> list[str]:
        """Return the tokens that are prepared and not committed, of all tasks of the step."""
        return [middle for middle in self._names.middles() if TOKEN.fullmatch(middle)]

    def close(self) -> None:
        """Discard files that were not prepared."""
        shutil.rmtree(self._open, ignore_errors=True)
        self._made.clear()

    def place_of(self, token: str) -> Path:
        """Return the folder of the files prepared under a token."""
        return self._hidden(token)

    def _hidden(self, middle: str) -> Path:
        return self._names.hidden(middle)
