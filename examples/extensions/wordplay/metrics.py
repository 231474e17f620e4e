"""A metrics sink: the newest counters of each process, as one JSON file for each container."""

from __future__ import annotations

import asyncio
import json
import os

from metrics_manager.sinks import SinkContext


class TotalsSink:
    """Writes ``metrics/totals-N.json`` of the topology's folder when something is new."""

    async def open(self, context: SinkContext) -> None:
        """Remember where we are. May raise: it is tried again at the next beat."""
        self.context = context
        self.path = context.launch.metrics_dir / f"totals-{context.container}.json"
        self.version = 0

    async def flush(self) -> None:
        """Each ``heron.metrics.interval.secs``. What is slow goes to a thread; the loop is the metrics manager's."""
        metrics = self.context.metrics
        version = metrics.version
        if version == self.version:
            return
        counters = {report.instance: dict(report.counters) for report in metrics.newest()}
        await asyncio.to_thread(self.write, json.dumps(counters))
        self.version = version  # only now: after an exception the same is tried again

    def write(self, text: str) -> None:
        """Readers see the old file or the new one, never a part."""
        part = self.path.with_suffix(".part")
        part.write_text(text)
        os.replace(part, self.path)

    async def close(self) -> None:
        """Nothing is held open."""
