"""Launcher of the container's processes: forks them by a zygote, or executes them.

Instances are forked by one zygote, services by another. A process is executed if its zygote cannot start. Instances are
also executed if the setting ``heron.instance.fork`` is off, or if the topology brings another version of a package that
the zygote has loaded. The loaded version would silently win in a forked process; in an executed one the topology's own
packages come first on the path.

The user's own modules are compiled once for all instances. Otherwise each instance would find no compiled code and
compile it at the same time. That costs time at every start, and memory that the interpreter keeps (a megabyte or more
for a module of some hundred lines). Requirements are left out: pip compiled them at installation, and they may have
thousands of files. Errors are ignored here, because the import of an instance meets and reports them.
"""

from __future__ import annotations

import asyncio
import compileall
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from heron_container.core.supervisor import ProcessSpec
from heron_container.shell.children import Child, ExecChild, ZygoteChild, ZygoteClient
from heron_container.shell.logs import LastLines, LogPipe, LogWriter
from heron_container.startup import ForkedZygote, service_kinds
from heron_container.zygote import INSTANCE, process_arguments, zygote_name
from heron_control.schedulers.identity import exit_in_words, process_title
from heron_runtime.code_user import CodeUser
from heron_runtime.launch import Launch
from heron_runtime.linux import CHANGE_USER, hold_capabilities
from heron_runtime.model.backoff import BackoffPolicy
from heron_runtime.model.ids import container_name, holds_master
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.net.handshake import instance_key
from heron_runtime.spawn import child_environment, python_command

# The distributions that heron_container.zygote.IMPORTED_FOR_INSTANCES loads, directly or indirectly.
LOADED = (
    "ddsketch", "mmh3", "msgspec", "numpy", "protobuf", "psutil", "setproctitle", "six", "typing-extensions", "uvloop",
)  # fmt: skip
_METADATA = re.compile(r".*\.(dist-info|egg-info|egg)", re.IGNORECASE)  # how importlib.metadata finds a distribution
ENOUGH_SECONDS = 5.0  # the rest of a large package is compiled when it is imported
_LEFT_OUT = frozenset({"requirements", "__pycache__"})
CLOSE_SECONDS = 5.0
WRITTEN_BY_ALL = 0o622
log = logging.getLogger(__name__)


def package_folders(package_dir: Path) -> list[Path]:
    """Return the folders that may contain a topology's requirements, in search order."""
    return [folder for folder in (package_dir, package_dir / "requirements") if folder.is_dir()]


def find_package_conflicts(package_dir: Path) -> list[str]:
    """Return ``name theirs (loaded: ours)`` for each distribution of another version than the loaded one."""
    folders = package_folders(package_dir)
    if not any(_METADATA.fullmatch(path.name) for folder in folders for path in folder.iterdir()):
        return []  # the usual case; reading our own metadata takes longer than starting an instance
    import importlib.metadata as metadata

    conflicts = []
    for folder in folders:
        for distribution in metadata.distributions(path=[str(folder)]):
            name = _normal(distribution.metadata["Name"] or "")
            for ours in metadata.distributions(name=name) if name in LOADED else ():
                if ours.version != distribution.version:
                    conflicts.append(f"{name} {distribution.version} (loaded: {ours.version})")
                break  # the first one is imported
    return sorted(set(conflicts))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def compile_package(package_dir: Path, enough_seconds: float = ENOUGH_SECONDS) -> int:
    """Compile modules that are not compiled yet, until ``enough_seconds`` have passed.

    Returns:
        The number of files looked at.
    """
    until = time.monotonic() + enough_seconds
    looked = 0
    for path in sorted(package_dir.rglob("*.py")):
        if time.monotonic() >= until:
            break
        if _LEFT_OUT.isdisjoint(path.relative_to(package_dir).parts):
            looked += 1
            compileall.compile_file(path, quiet=2)
    return looked


def start_compiling(package_dir: Path) -> None:
    """Compile the package on a thread, while the zygote gets ready."""
    threading.Thread(target=compile_package, args=(package_dir,), name="compile", daemon=True).start()


class ProcessLauncher:
    """Launcher of the container's processes.

    Answers each ``start`` by ``on_started(slot, child)`` or ``on_exit(slot, exit code, error)``.
    """

    def __init__(
        self,
        launch: Launch,
        launch_file: Path,
        container: int,
        policy: BackoffPolicy,
        writer: LogWriter,
        on_started: Callable[[int, Child], None],
        on_exit: Callable[[int, int | None, str], None],
        zygotes: Iterable[ForkedZygote] = (),
        code_user: CodeUser | None = None,
    ) -> None:
        self._launch = launch
        self._code_user = code_user
        self._launch_file = launch_file
        self._container = container
        self._writer = writer
        self._on_started = on_started
        self._on_exit = on_exit
        self._topology: TopologyDefinition | None = None
        self._loop = asyncio.get_running_loop()
        self._first_on_path = ""
        self._secret = "" if holds_master(container) else launch.secret()
        self._inherited = {inherited.kinds: inherited for inherited in zygotes}
        self._zygotes: dict[str, ZygoteClient] = {}  # by kind of process; other kinds are executed
        groups = [service_kinds(container)]
        if self._instances_may_be_forked():
            groups.append((INSTANCE,))
        for kinds in groups:
            zygote = ZygoteClient(
                spawn=partial(self._spawn_zygote, kinds),
                title=lambda spec: process_title(launch.topology, spec.name),
                key=self._key,
                container=container,
                policy=policy,
                on_started=on_started,
                on_exit=on_exit,
                on_abandoned=partial(self._exec_from_now_on, kinds),
            )
            self._zygotes |= dict.fromkeys(kinds, zygote)
            if kinds in self._inherited:
                zygote.start()
        for unused in self._inherited.values():
            unused.connection.close()
            ZygoteChild(unused.pid, lambda _: None)

    def configure(self, topology: TopologyDefinition) -> None:
        """Set the definition that environments are taken from. Called before the first ``start``."""
        self._topology = topology

    def start(self, spec: ProcessSpec, lines: LastLines) -> None:
        """Start a process whose predecessor, if any, has ended."""
        try:
            pipe = LogPipe(spec.name, lines, self._writer)
        except OSError as error:  # no descriptors left
            self._loop.call_soon(self._on_exit, spec.slot, None, f"not started: {error}")
            return
        if spec.is_instance and self._code_user is not None:
            os.fchmod(pipe.write_end, WRITTEN_BY_ALL)  # so that the user can open /dev/stdout again
        zygote = self._zygotes.get(spec.kind)
        if zygote is not None:
            zygote.fork(spec, self._environment(spec), pipe)
        else:
            self._exec(spec, pipe)

    def stop(self) -> None:
        """Start no further process. Requests that wait for a zygote end."""
        for zygote in self._zygotes.values():
            zygote.close()

    async def close(self) -> None:
        """Wait for the end of the zygotes, whose children have ended; then kill them."""
        self.stop()
        deadline = self._loop.time() + CLOSE_SECONDS
        while not all(zygote.has_ended for zygote in self._zygotes.values()) and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        for zygote in self._zygotes.values():
            zygote.kill()

    def _instances_may_be_forked(self) -> bool:
        if holds_master(self._container) or not setting(self._launch.settings, Keys.HERON_INSTANCE_FORK):
            return False
        conflicts = find_package_conflicts(self._launch.package_dir)
        if conflicts:
            log.warning("instances are not forked: the topology brings other versions of %s", ", ".join(conflicts))
            self._first_on_path = str(package_folders(self._launch.package_dir)[0])
        return not conflicts

    def _exec(self, spec: ProcessSpec, pipe: LogPipe) -> None:
        user = self._code_user if spec.is_instance else None
        launch_file = self._launch_file if user is None else self._launch.instance_launch_file
        command = python_command(spec.kind, *process_arguments(str(launch_file), self._container, spec.slot))
        if spec.is_instance:
            command += ["--component", spec.component, "--task", str(spec.task)]
        environment = child_environment(self._environment(spec), self._first_on_path if spec.is_instance else "")
        try:
            child = ExecChild(
                command,
                environment,
                pipe,
                lambda code: self._on_exit(spec.slot, code, ""),
                key=self._key(spec),
                user=user,
            )
        except OSError as error:
            self._loop.call_soon(self._on_exit, spec.slot, None, f"not started: {error}")
            return
        self._on_started(spec.slot, child)

    def _key(self, spec: ProcessSpec) -> str:
        """Return the key by which its stream manager authenticates an instance.

        Other processes read the topology's key themselves.
        """
        if not spec.is_instance:
            return ""
        return instance_key(self._secret, self._launch.topology_id, self._container, spec.task)

    def _environment(self, spec: ProcessSpec) -> dict[str, str]:
        """Return the environment that the user has set for an instance."""
        if not spec.is_instance:
            return {}
        environment = self._code_user.environment() if self._code_user is not None else {}
        if self._topology is not None:
            config = self._topology.component_config(spec.component)
            given = setting(config, Keys.TOPOLOGY_ENVIRONMENT)
            environment |= {str(name): str(value) for name, value in given.items()}
        return environment

    def _spawn_zygote(self, kinds: tuple[str, ...], on_exit: Callable[[str], None]) -> tuple[Child, socket.socket]:
        """Return the zygote forked during the start, or a new one.

        Raises:
            OSError: The zygote cannot be started.
        """
        inherited = self._inherited.pop(kinds, None)
        if inherited is not None:
            return ZygoteChild(inherited.pid, lambda code: on_exit(exit_in_words(code, ""))), inherited.connection
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
                LogPipe(f"{container_name(self._container)}-{zygote_name(kinds)}", lines, self._writer),
                lambda code: on_exit(exit_in_words(code, lines.last())),
                passed=[theirs.fileno()],
                with_lifeline=False,  # its socket serves as one
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
            if handing_on:
                hold_capabilities(CHANGE_USER)
        return child, ours

    def _exec_from_now_on(self, kinds: tuple[str, ...]) -> None:
        """Execute the processes that wait for this zygote, and all later ones of its kinds."""
        zygote = self._zygotes[kinds[0]]
        for kind in kinds:
            del self._zygotes[kind]
        for spec, pipe in zygote.take_waiting():
            self._exec(spec, pipe)
