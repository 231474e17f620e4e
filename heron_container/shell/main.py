"""Start of heron_container: lock, log, server, container, looks at the store; and its end."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import time

from heron_container.shell.compiling import begin_to_compile
from heron_container.shell.container import Container
from heron_container.shell.service import serve
from heron_container.shell.store_loop import StoreLoop
from heron_control.schedulers.identity import HostLock, container_lock, process_title
from heron_control.schedulers.log_files import OwnLog
from heron_runtime.commands import own_group, raise_descriptor_limit
from heron_runtime.model.ids import MASTER_CONTAINER, container_name
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.stored import ContainerLocation
from heron_runtime.process import (
    EXIT_REPLACED,
    ProcessArguments,
    also_log_to,
    parse_arguments,
    set_up_process,
    stop_on_signals,
    watch_lifeline,
)
from heron_runtime.telemetry.reporter import Reporter

LOG_CHECK_SECONDS = 10.0
log = logging.getLogger(__name__)


def main() -> None:
    """``python -m heron_container --launch FILE --container N``."""
    parser = argparse.ArgumentParser(prog="python -m heron_container")
    parser.add_argument("--instance-main", default="", help="module:function that the zygote's children run")
    parser.add_argument("--own-log", action="store_true", help="send stdout and stderr to the log folder")
    parser.add_argument("--echo-log", action="store_true", help="with --own-log, to the old stderr as well")
    arguments, options = parse_arguments("heron_container", parser)
    launch = arguments.launch
    os.makedirs(launch.runtime_dir, mode=0o700, exist_ok=True)
    own_log = OwnLog.of(launch, container_name(arguments.container))
    echo = os.dup(2) if options.echo_log else -1
    if options.own_log:
        own_log.take()
    title = process_title(launch.topology, container_name(arguments.container))
    set_up_process(title, setting(launch.settings, Keys.HERON_LOGGING_LEVEL))
    if echo >= 0:
        also_log_to(echo)
    own_group()
    raise_descriptor_limit()
    lock = HostLock(container_lock(launch.runtime_dir, arguments.container))
    if not lock.acquire(launch.topology_id):
        log.error("container %d of %s runs already on this host", arguments.container, launch.topology)
        sys.exit(EXIT_REPLACED)
    try:
        code = asyncio.run(_run(arguments, options.instance_main, own_log if options.own_log else None))
    except Exception:
        log.exception("heron_container has failed")  # in every log, also in the one that Docker keeps
        code = 1
    sys.exit(code)


async def _run(arguments: ProcessArguments, instance_main: str, own_log: OwnLog | None) -> int:
    loop = asyncio.get_running_loop()
    watch_lifeline(arguments.lifeline, loop)
    launch, number = arguments.launch, arguments.container
    incarnation = time.time_ns() // 1_000_000
    container = Container(launch, arguments.launch_file.resolve(), number, incarnation, instance_main)
    if number != MASTER_CONTAINER:
        begin_to_compile(launch.package_dir)
    stop_on_signals(loop, lambda: container.stop("asked to, by signal"))
    server, port = await serve(launch, container.status, container.child)
    log.info("container %d of %s on %s:%d, process %d", number, launch.topology, launch.host, port, os.getpid())
    location = ContainerLocation(launch.topology_id, number, launch.host, port, os.getpid(), incarnation)
    store = StoreLoop(launch, number, location)
    tasks = [loop.create_task(store.run(container.looked))]
    if own_log is not None:
        tasks.append(loop.create_task(_rotate(own_log)))
    reporter = Reporter(launch, number, container.metrics)
    reporter.start()
    await _first_to_end(loop.create_task(container.run()), tasks[0])
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(server.stop(0.2), reporter.stop())
    await store.close()
    log.info("container %d has stopped", number)
    return container.exit_code


async def _first_to_end(container: asyncio.Task[None], looks: asyncio.Task[None]) -> None:
    """Wait for the container; a fault in the looks at the store must not pass in silence."""
    await asyncio.wait({container, looks}, return_when=asyncio.FIRST_COMPLETED)
    if looks.done():
        container.cancel()
        looks.result()  # raises
    await container


async def _rotate(own_log: OwnLog) -> None:
    while True:
        await asyncio.sleep(LOG_CHECK_SECONDS)
        own_log.rotate_if_large()
