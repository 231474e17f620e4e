"""How a process of the container comes to life: forked by one of two zygotes, that of instances or that of services.

Processes are exec'ed when their zygote cannot start, and instances also when the setting ``heron.instance.fork`` says
so, and when the topology brings another version of a package that the zygote has loaded (then its own packages come
first on the path).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from heron_container.birth import Newborn, services_of
from heron_container.core.processes import ProcessSpec
from heron_container.shell.children import BornChild, Child, ExecChild
from heron_container.shell.logs import LastLines, LogPipe, LogWriter
from heron_container.shell.packages import conflicts, package_folders
from heron_container.shell.zygote_client import ZygoteClient
from heron_container.zygote import INSTANCE, arguments_of, room_of
from heron_control.schedulers.endings import exit_in_words
from heron_control.schedulers.identity import process_title
from heron_runtime.code_user import CodeUser
from heron_runtime.launch import Launch
from heron_runtime.linux import CHANGE_USER, hold_capabilities
from heron_runtime.model.backoff import BackoffPolicy
from heron_runtime.model.ids import container_name, holds_master
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.net.handshake import instance_key
from heron_runtime.spawn import child_environment, python_command

CLOSE_SECONDS = 5.0
WRITTEN_BY_ALL = 0o622
log = logging.getLogger(__name__)


class Spawning:
    """Starts processes. Answers each ``start`` by ``born(slot, child)`` or ``ended(slot, exit code, error)``."""

    def __init__(
        self,
        launch: Launch,
        launch_file: Path,
        container: int,
        policy: BackoffPolicy,
        writer: LogWriter,
        born: Callable[[int, Child], None],
        ended: Callable[[int, int | None, str], None],
        zygotes: Iterable[Newborn] = (),
        code_user: CodeUser | None = None,
    ) -> None:
        self._launch = launch
        self._code_user = code_user
        self._launch_file = launch_file
        self._container = container
        self._writer = writer
        self._born = born
        self._ended = ended
        self._topology: TopologyDefinition | None = None
        self._loop = asyncio.get_running_loop()
        self._first_on_path = ""
        self._secret = "" if holds_master(container) else launch.secret()
        self._newborn = {newborn.kinds: newborn for newborn in zygotes}
        self._zygotes: dict[str, ZygoteClient] = {}  # by kind of process; those that are not there are exec'ed
        groups = [services_of(container)]
        if self._instances_may_be_forked():
            groups.append((INSTANCE,))
        for kinds in groups:
            zygote = ZygoteClient(
                spawn=partial(self._spawn_zygote, kinds),
                title=lambda spec: process_title(launch.topology, spec.name),
                key=self._key,
                container=container,
                policy=policy,
                born=born,
                ended=ended,
                given_up=partial(self._give_up, kinds),
            )
            self._zygotes |= dict.fromkeys(kinds, zygote)
            if kinds in self._newborn:
                zygote.start()
        for unused in self._newborn.values():
            unused.connection.close()
            BornChild(unused.pid, lambda _: None)

    def configure(self, topology: TopologyDefinition) -> None:
        """The definition to take environments from; before the first ``start``."""
        self._topology = topology

    def start(self, spec: ProcessSpec, lines: LastLines) -> None:
        """Start a process whose predecessor, if any, is gone."""
        try:
            pipe = LogPipe(spec.name, lines, self._writer)
        except OSError as error:  # no descriptors left
            self._loop.call_soon(self._ended, spec.slot, None, f"not started: {error}")
            return
        if spec.is_instance and self._code_user is not None:
            os.fchmod(pipe.write_end, WRITTEN_BY_ALL)  # /dev/stdout can be opened anew, as it can by our own user
        zygote = self._zygotes.get(spec.kind)
        if zygote is not None:
            zygote.fork(spec, self._environment(spec), pipe)
        else:
            self._exec(spec, pipe)

    def stop(self) -> None:
        """Nothing new is started from now on; what waits for a zygote ends."""
        for zygote in self._zygotes.values():
            zygote.close()

    async def close(self) -> None:
        """Wait for the zygotes' end (their children are gone), then make sure of it."""
        self.stop()
        deadline = self._loop.time() + CLOSE_SECONDS
        while not all(zygote.gone for zygote in self._zygotes.values()) and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        for zygote in self._zygotes.values():
            zygote.kill()

    def _instances_may_be_forked(self) -> bool:
        if holds_master(self._container) or not setting(self._launch.settings, Keys.HERON_INSTANCE_FORK):
            return False
        found = conflicts(self._launch.package_dir)
        if found:
            log.warning("instances are exec'ed, since the topology brings other versions: %s", ", ".join(found))
            self._first_on_path = str(package_folders(self._launch.package_dir)[0])
        return not found

    def _exec(self, spec: ProcessSpec, pipe: LogPipe) -> None:
        user = self._code_user if spec.is_instance else None
        launch_file = self._launch_file if user is None else self._launch.instance_launch_file
        command = python_command(spec.kind, *arguments_of(str(launch_file), self._container, spec.slot))
        if spec.is_instance:
            command += ["--component", spec.component, "--task", str(spec.task)]
        environment = child_environment(self._environment(spec), self._first_on_path if spec.is_instance else "")
        try:
            child = ExecChild(
                command,
                environment,
                pipe,
                lambda code: self._ended(spec.slot, code, ""),
                key=self._key(spec),
                user=user,
            )
        except OSError as error:
            self._loop.call_soon(self._ended, spec.slot, None, f"not started: {error}")
            return
        self._born(spec.slot, child)

    def _key(self, spec: ProcessSpec) -> str:
        """What its stream manager knows an instance by. The others read the topology's key themselves."""
        if not spec.is_instance:
            return ""
        return instance_key(self._secret, self._launch.topology_id, self._container, spec.task)

    def _environment(self, spec: ProcessSpec) -> dict[str, str]:
        """What the user wants to see in the environment of an instance."""
        if not spec.is_instance:
            return {}
        environment = self._code_user.environment() if self._code_user is not None else {}
        if self._topology is not None:
            config = self._topology.component_config(spec.component)
            given = setting(config, Keys.TOPOLOGY_ENVIRONMENT)
            environment |= {str(name): str(value) for name, value in given.items()}
        return environment

    def _spawn_zygote(self, kinds: tuple[str, ...], ended: Callable[[str], None]) -> tuple[Child, socket.socket]:
        """The one that was forked at our birth, or a new one. Raises OSError."""
        newborn = self._newborn.pop(kinds, None)
        if newborn is not None:
            return BornChild(newborn.pid, lambda code: ended(exit_in_words(code, ""))), newborn.connection
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = python_command(
            "heron_container.zygote", "--launch", str(self._launch_file), "--container", str(self._container),
            "--socket", str(theirs.fileno()), *kinds,
        )  # fmt: skip
        lines = LastLines()
        handing_on = self._code_user is not None and INSTANCE in kinds and os.geteuid() != 0
        try:
            if handing_on:
                hold_capabilities(CHANGE_USER, handed_on=CHANGE_USER)
            child = ExecChild(
                command,
                child_environment(),
                LogPipe(f"{container_name(self._container)}-{room_of(kinds)}", lines, self._writer),
                lambda code: ended(exit_in_words(code, lines.last())),
                passed=[theirs.fileno()],
                with_lifeline=False,  # its socket is one
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
            if handing_on:
                hold_capabilities(CHANGE_USER)
        return child, ours

    def _give_up(self, kinds: tuple[str, ...]) -> None:
        """No zygote: exec what waits for it, and all that come later."""
        zygote = self._zygotes[kinds[0]]
        for kind in kinds:
            del self._zygotes[kind]
        for spec, pipe in zygote.take_waiting():
            self._exec(spec, pipe)
