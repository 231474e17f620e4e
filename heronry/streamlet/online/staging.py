"""Files of one step in one task, seen by readers when their checkpoint is complete. The way of ``connect/spool.py``,
for any number of files in a token.

::

    .STEP-open-INDEX-x/…    as they are written     dies with its task: nothing of it counts
    .STEP-TOKEN/…           prepared                on disk before the checkpoint can be complete
    …                       committed               each moved to the same place below the root
    .STEP-done-LIFE-TOKEN/  the mark of that        the emptied folder of the task's last token, renamed

The root must be the same for all tasks of the component: after a fault another one may commit. A commit that comes
again moves what is left, or finds the mark. Where it finds neither, output that a checkpoint names is lost, or lies on
another host, and that is an error (``connect/marks.py``).
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from heron_runtime.files import sync_folder
from heronry.connect.marks import MARK, TOKEN, Marks, OutputIsGone


class StagingFolder:
    """Below ``root``, of task ``index`` of ``of`` in this ``life`` of the topology. Everything raises OSError."""

    def __init__(self, root: Path, step: str, index: int, of: int, life: int) -> None:
        self.root = root
        self._step = step
        self._names = Marks(root, step, str(life))
        self._open = root / f".{step}-open-{index}-{secrets.token_hex(8)}"
        self._made: set[Path] = set()
        middles = list(self._names.middles())  # one look: other tasks go on committing
        last = self._names.last(middles)
        self._marks = {task: self._hidden(middle) for task, (_, middle) in last.items()}
        for middle in middles:
            word, _, rest = middle.partition("-")
            task, _, _ = rest.partition("-")
            died = word == "open" and task.isdecimal() and (int(task) == index or int(task) >= of)
            mark = MARK.fullmatch(middle)
            passed = mark is not None and mark[1].isdecimal() and int(mark[1]) <= life
            over = passed and self._hidden(middle) not in self._marks.values()
            if died or over:  # with its process; with its life, or followed by another mark
                shutil.rmtree(self._hidden(middle), ignore_errors=True)

    def file(self, place: str | Path) -> Path:
        """Where to write what will be at this place below the root."""
        path = self._open / place
        if path.parent not in self._made:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._made.add(path.parent)
        return path

    def prepare(self, token: str) -> bool:
        """What has been written is on disk under the token; False if that is nothing."""
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
        """Move it into place; marks for readers, whose names begin with ``_``, last. ``certain``: something was
        prepared under this token, in this life. Raises OutputIsGone if that is not here, and never was committed."""
        hidden = self._hidden(token)
        if not hidden.is_dir():
            if certain:
                self._look_for_mark(token)
            return
        found = [Path(place, name) for place, _, names in os.walk(hidden) for name in names]
        for path in sorted(found, key=lambda path: (path.name.startswith("_"), path)):
            target = self.root / path.relative_to(hidden)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
            sync_folder(target.parent)
        if certain:
            self._mark(hidden, token)
        else:
            shutil.rmtree(hidden, ignore_errors=True)

    def _mark(self, hidden: Path, token: str) -> None:
        """Its folder, which holds no file any more, becomes the mark; one a task is enough."""
        task = int(token.split("-")[2])
        mark = self._names.path(token)
        os.rename(hidden, mark)
        sync_folder(self.root)
        before = self._marks.get(task)
        self._marks[task] = mark
        for left in (*mark.iterdir(), *([before] if before is not None else [])):
            shutil.rmtree(left, ignore_errors=True)

    def _look_for_mark(self, token: str) -> None:
        _, number, task, _ = token.split("-")
        if not self._names.has(token):
            raise OutputIsGone(
                f"step {self._step!r}: what task {task} has written for checkpoint {number} is not in {self.root}, "
                f"neither waiting ({self._hidden(token).name}) nor marked as committed: give all hosts of the topology "
                f"the same {self.root}, and let nobody else remove hidden files there; where it lies on another host, "
                "move it here, then heron restore; if it is lost, heron restore to an older checkpoint with "
                "--repeat-output writes it again"
            )

    def abort(self, token: str) -> None:
        """It was never seen."""
        shutil.rmtree(self._hidden(token), ignore_errors=True)

    def prepared(self) -> list[str]:
        """Tokens that wait, of all tasks of the step."""
        return [middle for middle in self._names.middles() if TOKEN.fullmatch(middle)]

    def close(self) -> None:
        """What was not prepared is not kept."""
        shutil.rmtree(self._open, ignore_errors=True)
        self._made.clear()

    def place_of(self, token: str) -> Path:
        """The folder of what is prepared under it."""
        return self._hidden(token)

    def _hidden(self, middle: str) -> Path:
        return self._names.hidden(middle)
