"""``python -m metrics_manager``: the metrics manager of one container, until it is asked to stop."""

from __future__ import annotations

import asyncio

from heronry.model.settings import setting
from heronry.process import (
    ProcessArguments,
    beat_forever,
    parse_arguments,
    set_up_process,
    stop_on_signals,
    watch_lifeline,
)
from metrics_manager.shell.server import MetricsManager


async def run(arguments: ProcessArguments) -> None:
    """Serve until the process is asked to stop. Raises OSError."""
    loop = asyncio.get_running_loop()
    manager = MetricsManager(arguments.launch, arguments.container)
    watch_lifeline(arguments.lifeline, loop)
    stop_on_signals(loop, manager.stopped.set)
    beat = asyncio.create_task(beat_forever(arguments, lambda: manager.phase), name="heartbeat")
    try:
        await manager.start()
        await manager.stopped.wait()
    finally:
        await manager.stop()
        beat.cancel()


def main() -> None:
    """Entry point."""
    arguments, _ = parse_arguments("metrics_manager")
    launch = arguments.launch
    title = f"heron:{launch.topology}:metrics_manager-{arguments.container}"
    set_up_process(title, setting(launch.settings, "heron.logging.level"))
    asyncio.run(run(arguments))


if __name__ == "__main__":
    main()
