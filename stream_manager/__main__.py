"""``python -m stream_manager --launch FILE --container N --slot K --lifeline FD``."""

from __future__ import annotations

import asyncio
import sys

from heronry.model.settings import setting
from heronry.net.loop import run_loop
from heronry.process import (
    EXIT_REPLACED,
    ProcessArguments,
    beat_forever,
    parse_arguments,
    set_scheduling,
    set_up_process,
    stop_on_signals,
    watch_lifeline,
)
from stream_manager.shell.process import StreamManagerProcess


async def run(arguments: ProcessArguments) -> int:
    """Run until told to stop; the exit code."""
    loop = asyncio.get_running_loop()
    watch_lifeline(arguments.lifeline, loop)
    process = StreamManagerProcess(arguments.launch, arguments.container)
    await process.start()
    stop_on_signals(loop, process.host.stop.set)
    beating = loop.create_task(beat_forever(arguments, process.phase))
    try:
        return EXIT_REPLACED if await process.run() else 0
    finally:
        beating.cancel()
        await process.close()


def main() -> None:
    """The process."""
    arguments, _ = parse_arguments("stream_manager")
    launch = arguments.launch
    level = str(setting(launch.settings, "heron.logging.level"))
    set_up_process(f"heron:{launch.topology}:stream_manager-{arguments.container}", level)
    set_scheduling(str(setting(launch.settings, "heron.process.scheduling")))
    sys.exit(run_loop(run(arguments)))


if __name__ == "__main__":
    main()
