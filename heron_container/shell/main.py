"""Wiring of heron_container after its single-threaded start: lock, server, container and store watch."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from typing import NoReturn

from heron_container.shell.container import Container
from heron_container.shell.process_launcher import start_compiling
from heron_container.shell.service import serve
from heron_container.shell.store_watch import StoreWatch
from heron_container.startup import ContainerStartup
from heron_control.schedulers.identity import HostLock, container_lock
from heron_control.schedulers.log_files import OwnLog
from heron_control.schedulers.runtime import remove_runtime_dir
from heron_control.schedulers.slurm_plan import SLURM
from heron_runtime.model.ids import holds_master
from heron_runtime.model.records import ContainerLocation
from heron_runtime.model.settings import Keys, setting
from heron_runtime.process import EXIT_REPLACED, also_log_to, stop_on_signals, watch_lifeline
from heron_runtime.telemetry.reporter import MetricsReporter

LOG_CHECK_SECONDS = 10.0
log = logging.getLogger(__name__)


def run(startup: ContainerStartup) -> NoReturn:
    """Run this container until its end."""
    if startup.echo >= 0:
        also_log_to(startup.echo)
    arguments, launch = startup.arguments, startup.arguments.launch
    lock = HostLock(container_lock(launch.runtime_dir, arguments.container))
    if not lock.acquire(launch.topology_id):
        log.error("container %d of %s already runs on this host", arguments.container, launch.topology)
        sys.exit(EXIT_REPLACED)
    try:
        code = asyncio.run(_run(startup))
    except Exception:
        log.exception("heron_container has failed")  # in every log, also in the one that Docker keeps
        code = 1
    if setting(launch.settings, Keys.HERON_SCHEDULER) == SLURM:
        remove_runtime_dir(launch)  # used by this container only
    sys.exit(code)


async def _run(startup: ContainerStartup) -> int:
    arguments, own_log = startup.arguments, startup.own_log
    loop = asyncio.get_running_loop()
    watch_lifeline(arguments.lifeline, loop)
    launch, number = arguments.launch, arguments.container
    incarnation = time.time_ns() // 1_000_000
    container = Container(
        launch, arguments.launch_file.resolve(), number, incarnation, startup.zygotes, startup.code_user
    )
    if not holds_master(number):
        start_compiling(launch.package_dir)
    stop_on_signals(loop, lambda: container.stop("received a signal"))
    server, port = await serve(launch, container.status, container.child)
    log.info("container %d of %s on %s:%d, process %d", number, launch.topology, launch.host, port, os.getpid())
    location = ContainerLocation(launch.topology_id, number, launch.host, port, os.getpid(), incarnation)
    store = StoreWatch(launch, number, location)
    tasks = [loop.create_task(store.run(container.apply_observation))]
    if own_log is not None:
        tasks.append(loop.create_task(_rotate(own_log)))
    reporter = MetricsReporter(launch, number, container.metrics)
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
    """Wait for the container; raise an exception of the store watch at once."""
    await asyncio.wait({container, looks}, return_when=asyncio.FIRST_COMPLETED)
    if looks.done():
        container.cancel()
        looks.result()  # raises
    await container


async def _rotate(own_log: OwnLog) -> None:
    while True:
        await asyncio.sleep(LOG_CHECK_SECONDS)
        own_log.rotate_if_large()
