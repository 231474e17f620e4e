"""Ends what instances have left behind and no zygote has taken: those that were exec'ed, or whose zygote has died.

Where this process has children that it did not start, they are such orphans. Not in container 0: it runs no user code,
and it may be the parent of a scheduler whose containers would come to it.
"""

from __future__ import annotations

import asyncio
import logging

from heron_container.shell.children import STARTED
from heron_runtime.linux import become_subreaper
from heron_runtime.orphans import end_orphans

AGAIN_SECONDS = 0.02
PATIENCE_SECONDS = 5.0
log = logging.getLogger(__name__)


class Sweeping:
    """Of one container, on its event loop."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._loop = asyncio.get_running_loop()
        self._due: asyncio.Handle | None = None
        if wanted:
            become_subreaper()

    def look(self) -> None:
        """Soon: a process of ours has ended. Many that end together are one look."""
        if self._wanted and self._due is None:
            self._due = self._loop.call_soon(self._look)

    async def finish(self) -> None:
        """Until nothing is left, when all that we have started is gone."""
        deadline = self._loop.time() + PATIENCE_SECONDS
        while self._wanted and end_orphans(STARTED):
            if self._loop.time() > deadline:
                log.error("processes that user code has left behind do not end; they may hang in the kernel")
                return
            await asyncio.sleep(AGAIN_SECONDS)

    def _look(self) -> None:
        self._due = None
        if found := end_orphans(STARTED):
            log.warning("ending %d processes that user code has left behind", found)
            self._due = self._loop.call_later(AGAIN_SECONDS, self._look)
