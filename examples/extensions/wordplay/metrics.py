"""Metrics sink that writes the newest counters of each process to a JSON file for each container."""

from __future__ import annotations

import asyncio
import json
import os

from metrics_manager.sinks import SinkContext


class TotalsSink:
    """Sink that writes ``metrics/totals-N.json`` in the folder of the topology when values changed."""

    async def open(self, context: SinkContext) -> None:
        """Prepare the path. If this raises, the metrics manager calls it again at the next interval."""
        self.context = context
        self.path = context.launch.metrics_dir / f"totals-{context.container}.json"
        self.version = 0

    async def flush(self) -> None:
        """Write new counters, in a thread, since the metrics manager's loop must not block."""
        metrics = self.context.metrics
        version = metrics.version
        if version == self.version:
            return
        counters = {report.instance: dict(report.counters) for report in metrics.newest()}
        await asyncio.to_thread(self.write, json.dumps(counters))
        self.version = version  # set last, so that the values are written again after an exception

    def write(self, text: str) -> None:
        """Replace the file in one step."""
        part = self.path.with_suffix(".part")
        part.write_text(text)
        os.replace(part, self.path)

    async def close(self) -> None:
        """Do nothing, since no file is open."""
