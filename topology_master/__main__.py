"""``python -m topology_master``: one topology master, acting or standing by, until the topology ends."""

from __future__ import annotations

import argparse
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
from heronry.state import store_of
from topology_master.shell.server import TopologyMaster


async def run(arguments: ProcessArguments, replica: int) -> None:
    """Serve until the topology is killed or the process is asked to stop. Raises StoreError, OSError."""
    launch = arguments.launch
    loop = asyncio.get_running_loop()
    master = TopologyMaster(launch, store_of(launch), arguments.container, replica)
    watch_lifeline(arguments.lifeline, loop)
    stop_on_signals(loop, master.stopped.set)
    beat = asyncio.create_task(beat_forever(arguments, lambda: master.phase), name="heartbeat")
    try:
        await master.start()
        await master.stopped.wait()
    finally:
        await master.stop()
        beat.cancel()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m topology_master")
    parser.add_argument("--replica", type=int, default=0, help="0: the first; above: a standby of that number")
    arguments, options = parse_arguments("topology_master", parser)
    launch = arguments.launch
    name = f"topology_master-{arguments.container}" + (f"-{options.replica}" if options.replica else "")
    set_up_process(f"heron:{launch.topology}:{name}", setting(launch.settings, "heron.logging.level"))
    asyncio.run(run(arguments, options.replica))


if __name__ == "__main__":
    main()
