"""``python -m data_pipeline …`` with injected deaths of a worker and of the driver: ``python dying_driver.py FLAG …``.

The first task that has staged kills its worker (recorded in the file FLAG). The driver is killed between rename and
commit.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

from data_pipeline import __main__ as command
from data_pipeline.shell import results, staged, tasks

FLAG = sys.argv[1]


class Dying(tasks.StageTask):
    """Task that kills its worker once."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for report in super().__call__(batches):
            try:
                os.close(os.open(FLAG, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                yield report
            else:
                os.kill(os.getpid(), signal.SIGKILL)


def die(*_: object) -> list[str]:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


if __name__ == "__main__":
    setattr(staged, "StageTask", Dying)  # noqa: B010  # a name that it imports
    setattr(results, "settle", die)  # noqa: B010
    sys.exit(command.main(sys.argv[2:]))
