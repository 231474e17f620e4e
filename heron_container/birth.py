"""The first moments of heron_container, in which it is single-threaded and has opened nothing: it forks its zygotes.

What container and zygotes have in common is imported once. The zygote of instances leaves before gRPC is imported, that
of the services (topology master, stream manager, metrics manager) after it; what each needs besides it imports itself,
while this process goes on. So a container costs one interpreter's start instead of four or five.
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

from heron_container.zygote import INSTANCE, be_zygote
from heron_control.schedulers.identity import process_title
from heron_control.schedulers.log_files import OwnLog
from heron_control.schedulers.remnants import mark_of
from heron_runtime import cgroups
from heron_runtime.code_user import READ, CodeUser, attainable_code_user
from heron_runtime.commands import MARK, own_group, raise_descriptor_limit
from heron_runtime.failures import Failure
from heron_runtime.kernel import CHANGE_USER, gain_nothing, hold_capabilities
from heron_runtime.launch import Launch
from heron_runtime.model.ids import container_name, holds_master
from heron_runtime.model.settings import Keys, setting
from heron_runtime.process import ProcessArguments, parse_arguments, set_up_process

SHARED = ("uvloop", "heron_runtime.wire.message_codecs", "heron_runtime.telemetry.reporting", "heron_runtime.net.link")


@dataclass(frozen=True)
class Newborn:
    """A zygote that has just been forked: its process, and our end of its socket."""

    kinds: tuple[str, ...]
    pid: int
    connection: socket.socket


@dataclass(frozen=True)
class Birth:
    """What a container knows when it is born."""

    arguments: ProcessArguments
    own_log: OwnLog | None  # where stdout and stderr go to the log folder
    echo: int  # the old stderr, if it is to have the log as well; else -1
    code_user: CodeUser | None = None  # as whom instances run; None: as we do
    zygotes: list[Newborn] = field(default_factory=list)


def services_of(container: int) -> tuple[str, ...]:
    """The rooms of a container beside its instances."""
    return ("topology_master" if holds_master(container) else "stream_manager", "metrics_manager")


def main() -> None:
    """``python -m heron_container --launch FILE --container N``."""
    birth = _set_up()
    arguments = birth.arguments
    gc.disable()  # until all that is shared is there, and frozen: a collection would write to its pages
    if not holds_master(arguments.container) and setting(arguments.launch.settings, Keys.HERON_INSTANCE_FORK):
        for name in SHARED:
            importlib.import_module(name)
        birth.zygotes.append(_fork(birth, (INSTANCE,)))
    from heron_container.shell.main import run  # gRPC is imported from here on

    birth.zygotes.append(_fork(birth, services_of(arguments.container)))
    gc.enable()
    run(birth)


def _set_up() -> Birth:
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
    return Birth(arguments, own_log, echo, code_user)


def _take_code_user(launch: Launch) -> CodeUser | None:
    """As whom instances are to run, with the way to their sockets open to them. From now on nobody below us gains
    rights, and only we and the zygote of instances have those that it takes."""
    user = attainable_code_user(launch.settings)
    if user is not None:
        user.open_runtime_dir(Path(launch.runtime_dir))
        launch.for_instances().save(launch.instance_launch_file)
        user.share(launch.instance_launch_file, READ)
        gain_nothing()
        if os.geteuid() != 0:  # root needs none
            hold_capabilities(CHANGE_USER)
    return user


def _fork(birth: Birth, kinds: tuple[str, ...]) -> Newborn:
    arguments, user = birth.arguments, birth.code_user if INSTANCE in kinds else None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gc.freeze()
    pid = os.fork()
    if pid == 0:
        os.dup2(theirs.fileno(), 3, inheritable=False)
        ours.detach(), theirs.detach()
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        be_zygote(
            socket.socket(fileno=3), arguments.launch, str(arguments.launch_file), arguments.container, kinds, user
        )
    theirs.close()
    return Newborn(kinds, pid, ours)
