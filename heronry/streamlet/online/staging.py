"""Files of one step in one task, seen by readers when their checkpoint is complete. The way of ``connect/spool.py``,
for any number of files in a token.

::

    .STEP-open-INDEX-x/…   as they are written     dies with its task: nothing of it counts
    .STEP-TOKEN/…          prepared                on disk before the checkpoint can be complete
    …                      committed               each moved to the same place below the root

A commit that comes again moves what is left, or finds nothing to do. The root must be the same for all tasks of the
component: after a fault another one may commit.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from heron_runtime.files import entries, sync_folder
from heronry.connect.spool import TOKEN


class Staging:
    """Below ``root``. Everything raises OSError."""

    def __init__(self, root: Path, step: str, index: int, of: int) -> None:
        self.root = root
        self._step = step
        self._open = root / f".{step}-open-{index}-{secrets.token_hex(8)}"
        self._made: set[Path] = set()
        for middle in self._middles():
            word, _, rest = middle.partition("-")
            task, _, _ = rest.partition("-")
            if word == "open" and task.isdecimal() and (int(task) == index or int(task) >= of):
                shutil.rmtree(self._hidden(middle), ignore_errors=True)  # what died with it

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

    def commit(self, token: str) -> None:
        """Move it into place; marks, whose names begin with ``_``, last."""
        hidden = self._hidden(token)
        found = [Path(place, name) for place, _, names in os.walk(hidden) for name in names]
        for path in sorted(found, key=lambda path: (path.name.startswith("_"), path)):
            target = self.root / path.relative_to(hidden)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
            sync_folder(target.parent)
        shutil.rmtree(hidden, ignore_errors=True)

    def abort(self, token: str) -> None:
        """It was never seen."""
        shutil.rmtree(self._hidden(token), ignore_errors=True)

    def prepared(self) -> list[str]:
        """Tokens that wait, of all tasks of the step."""
        return [middle for middle in self._middles() if TOKEN.fullmatch(middle)]

    def close(self) -> None:
        """What was not prepared is not kept."""
        shutil.rmtree(self._open, ignore_errors=True)
        self._made.clear()

    def place_of(self, token: str) -> Path:
        """The folder of what is prepared under it."""
        return self._hidden(token)

    def _hidden(self, middle: str) -> Path:
        return self.root / f".{self._step}-{middle}"

    def _middles(self) -> Iterator[str]:
        """What stands behind the step in hidden names."""
        begin = f".{self._step}-"
        for path in entries(self.root):
            if path.name.startswith(begin):
                yield path.name.removeprefix(begin)
