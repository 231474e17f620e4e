"""How a process of the container comes to life: forked by the zygote if it is an instance, exec'ed if not.

Instances are exec'ed, too, when the setting ``heron.instance.fork`` says so, when the topology brings another
version of a package that the zygote has loaded (then its own packages come first on the path), and when the zygote
cannot start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from heron_container.core.processes import ProcessSpec
from heron_container.shell.children import Child, ExecChild
from heron_container.shell.logs import LastLines, LogPipe, LogWriter
from heron_container.shell.packages import conflicts, package_folders
from heron_container.shell.zygote_client import ZygoteClient
from heron_control.schedulers.endings import exit_in_words
from heron_control.schedulers.identity import process_title
from heron_runtime.commands import child_environment, python_command
from heron_runtime.launch import Launch
from heron_runtime.model.backoff import BackoffPolicy
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import TopologyDefinition

CLOSE_SECONDS = 5.0
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
        instance_main: str = "",
    ) -> None:
        self._launch = launch
        self._launch_file = launch_file
        self._container = container
        self._writer = writer
        self._born = born
        self._ended = ended
        self._instance_main = instance_main
        self._topology: TopologyDefinition | None = None
        self._loop = asyncio.get_running_loop()
        self._first_on_path = ""
        self._zygote = ZygoteClient(
            spawn=self._spawn_zygote,
            title=lambda spec: process_title(launch.topology, spec.name),
            container=container,
            policy=policy,
            born=born,
            ended=ended,
            given_up=self._give_up,
        )
        self._fork = setting(launch.settings, Keys.HERON_INSTANCE_FORK)
        found = conflicts(launch.package_dir) if self._fork else []
        if found:
            log.warning("instances are exec'ed, since the topology brings other versions: %s", ", ".join(found))
            self._fork = False
            self._first_on_path = str(package_folders(launch.package_dir)[0])

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
        if spec.is_instance and self._fork:
            self._zygote.fork(spec, self._environment(spec), pipe)
        else:
            self._exec(spec, pipe)

    def stop(self) -> None:
        """Nothing new is started from now on; what waits for the zygote ends."""
        self._zygote.close()

    async def close(self) -> None:
        """Wait for the zygote's end (its children are gone), then make sure of it."""
        self._zygote.close()
        deadline = self._loop.time() + CLOSE_SECONDS
        while not self._zygote.gone and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        self._zygote.kill()

    def _exec(self, spec: ProcessSpec, pipe: LogPipe) -> None:
        command = python_command(spec.kind, *self._arguments(), "--slot", str(spec.slot))
        if spec.is_instance:
            command += ["--component", spec.component, "--task", str(spec.task)]
        if spec.replica:
            command += ["--replica", str(spec.replica)]
        environment = child_environment(self._environment(spec), self._first_on_path if spec.is_instance else "")
        try:
            child = ExecChild(
                command, environment, self._launch.home, pipe, lambda code: self._ended(spec.slot, code, "")
            )
        except OSError as error:
            self._loop.call_soon(self._ended, spec.slot, None, f"not started: {error}")
            return
        self._born(spec.slot, child)

    def _arguments(self) -> list[str]:
        return ["--launch", str(self._launch_file), "--container", str(self._container)]

    def _environment(self, spec: ProcessSpec) -> dict[str, str]:
        """What the user wants to see in the environment of an instance."""
        if not spec.is_instance or self._topology is None:
            return {}
        config = self._topology.component_config(spec.component)
        return {str(name): str(value) for name, value in setting(config, Keys.TOPOLOGY_ENVIRONMENT).items()}

    def _spawn_zygote(self, socket: int, ended: Callable[[str], None]) -> ExecChild:
        name = f"heron_container-{self._container}-zygote"
        command = python_command("heron_container.zygote", *self._arguments(), "--socket", str(socket))
        if self._instance_main:
            command += ["--main", self._instance_main]
        lines = LastLines()
        return ExecChild(
            command,
            child_environment(),
            self._launch.home,
            LogPipe(name, lines, self._writer),
            lambda code: ended(exit_in_words(code, lines.last())),
            passed=[socket],
            with_lifeline=False,  # its socket is one
        )

    def _give_up(self) -> None:
        """No zygote: exec what waits for it, and all that come later."""
        self._fork = False
        for spec, pipe in self._zygote.take_waiting():
            self._exec(spec, pipe)
