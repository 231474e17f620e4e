"""Single-threaded start of heron_container, which forks the zygotes before it opens anything.

The modules that container and zygotes share are imported once. The zygote of instances is forked before gRPC is
imported, that of the services (topology master, stream manager, metrics manager) after it. Each zygote then imports the
rest of its modules while this process continues. A container therefore costs one interpreter start instead of four or
five.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import os
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path

from heron_container.zygote import INSTANCE, run_zygote
from heron_control.schedulers.identity import mark_of, process_title
from heron_control.schedulers.log_files import OwnLog
from heron_runtime import cgroups
from heron_runtime.code_user import READ, CodeUser, attainable_code_user
from heron_runtime.failures import Failure
from heron_runtime.launch import Launch
from heron_runtime.linux import CHANGE_USER, forbid_new_privileges, hold_capabilities
from heron_runtime.model.ids import container_name, holds_master
from heron_runtime.model.settings import Keys, setting
from heron_runtime.process import ProcessArguments, parse_arguments, set_up_process
from heron_runtime.spawn import MARK, own_group, raise_descriptor_limit

SHARED = ("uvloop", "heron_runtime.wire.message_codecs", "heron_runtime.telemetry.recorder", "heron_runtime.net.link")


@dataclass(frozen=True)
class ForkedZygote:
    """Process id and our socket end of a zygote that was forked during the start."""

    kinds: tuple[str, ...]
    pid: int
    connection: socket.socket


@dataclass(frozen=True)
class ContainerStartup:
    """State handed from the single-threaded start to the event loop."""

    arguments: ProcessArguments
    own_log: OwnLog | None  # log file, if stdout and stderr go to the log folder
    echo: int  # the old stderr, if it gets a copy of the log; else -1
    code_user: CodeUser | None = None  # user that instances run as; None: the user of this process
    zygotes: list[ForkedZygote] = field(default_factory=list)


def service_kinds(container: int) -> tuple[str, ...]:
    """Return the kinds of the container's processes that are not instances."""
    return ("topology_master" if holds_master(container) else "stream_manager", "metrics_manager")


def main() -> None:
    """Run ``python -m heron_container --launch FILE --container N``."""
    startup = _set_up()
    arguments = startup.arguments
    gc.disable()  # until the shared modules are loaded and frozen: a collection would write to their pages
    if not holds_master(arguments.container) and setting(arguments.launch.settings, Keys.HERON_INSTANCE_FORK):
        for name in SHARED:
            importlib.import_module(name)
        startup.zygotes.append(_fork(startup, (INSTANCE,)))
    from heron_container.shell.main import run  # gRPC is imported from here on

    startup.zygotes.append(_fork(startup, service_kinds(arguments.container)))
    gc.enable()
    run(startup)


def _set_up() -> ContainerStartup:
    parser = argparse.ArgumentParser(prog="python -m heron_container")
    parser.add_argument("--own-log", action="store_true", help="send stdout and stderr to the log folder")
    parser.add_argument("--echo-log", action="store_true", help="with --own-log, to the old stderr as well")
    arguments, options = parse_arguments("heron_container", parser)
    launch, name = arguments.launch, container_name(arguments.container)
    os.environ[MARK] = mark_of(launch.topology_id, arguments.container)
    os.makedirs(launch.runtime_dir, mode=0o700, exist_ok=True)
    if setting(launch.settings, Keys.HERON_SCHEDULER) == "local":
        cgroups.enter(launch, arguments.container)
    own_log = OwnLog.of(launch, name) if options.own_log else None
    echo = os.dup(2) if options.echo_log else -1
    if own_log is not None:
        own_log.take()
    set_up_process(process_title(launch.topology, name), setting(launch.settings, Keys.HERON_LOGGING_LEVEL))
    own_group()
    raise_descriptor_limit()
    try:
        code_user = None if holds_master(arguments.container) else _take_code_user(launch)
    except Failure as error:
        logging.getLogger("heron_container").error("cannot start: %s. %s", error.message, error.cure)
        sys.exit(1)
    return ContainerStartup(arguments, own_log, echo, code_user)


def _take_code_user(launch: Launch) -> CodeUser | None:
    """Return the user that instances run as and prepare the container for it.

    The user gets access to the sockets in the runtime folder. From here on no process below this one can gain
    privileges, and only this process and the zygote of instances keep the capabilities for changing users.
    """
    user = attainable_code_user(launch.settings)
    if user is not None:
        user.open_runtime_dir(Path(launch.runtime_dir))
        launch.for_instances().save(launch.instance_launch_file)
        user.share(launch.instance_launch_file, READ)
        forbid_new_privileges()
        if os.geteuid() != 0:  # root does not need them
            hold_capabilities(CHANGE_USER)
    return user


def _fork(startup: ContainerStartup, kinds: tuple[str, ...]) -> ForkedZygote:
    arguments, user = startup.arguments, startup.code_user if INSTANCE in kinds else None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gc.freeze()
    pid = os.fork()
    if pid == 0:
        os.dup2(theirs.fileno(), 3, inheritable=False)
        ours.detach(), theirs.detach()
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        run_zygote(
            socket.socket(fileno=3), arguments.launch, str(arguments.launch_file), arguments.container, kinds, user
        )
    theirs.close()
    return ForkedZygote(kinds, pid, ours)
