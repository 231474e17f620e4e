"""Event loop of a container: owner of the process table, the heartbeat files and the children.

Facts come from pidfds and the zygotes (starts and ends), from a timer (beats, phases, time) and from observations of
the state store (plans, the killed state). Each goes to the core, and ``_act`` carries out the effects it returns.
``stop`` asks all children to leave; ``run`` returns once the end of the last one is confirmed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import psutil

from heron_container.core.liveness import Judgement, Liveness, SchedulerWatch, scheduler_patience
from heron_container.core.storage import DiskSpace, describe_full_disk
from heron_container.core.supervisor import (
    Effect,
    FindReplacement,
    Kill,
    ProcessSpec,
    Start,
    Supervisor,
    Terminate,
    build_process_specs,
)
from heron_container.shell.children import Child, OrphanReaper
from heron_container.shell.logs import LastLines, LogWriter
from heron_container.shell.process_launcher import ProcessLauncher
from heron_container.shell.resource_limits import MemoryLimit, VolumeMonitor
from heron_container.shell.store_watch import ContainerPlans, StoreObservation
from heron_container.startup import ForkedZygote
from heron_control.schedulers import local
from heron_control.schedulers.identity import catches, exit_in_words, traced
from heron_control.schedulers.scheduler import SchedulerError
from heron_control.schedulers.timers import DeadlineTimer, now_ms
from heron_runtime.checkpoint_files import checkpoint_folder
from heron_runtime.code_user import PASSED_THROUGH, TALKED_THROUGH, CodeUser
from heron_runtime.launch import Launch
from heron_runtime.model.backoff import BackoffPolicy
from heron_runtime.model.ids import MASTER_CONTAINER, container_name, holds_master
from heron_runtime.model.settings import Keys, MiB, setting
from heron_runtime.process import EXIT_OTHER_SETTINGS, EXIT_REPLACED, HeartbeatReader, ProcessPhase
from heron_runtime.telemetry.recorder import Telemetry
from heron_runtime.wire.container import ContainerStatus, ProcessState, ProcessStatus
from heron_runtime.wire.metrics import ProcessMetrics

LIVENESS_KEYS = (
    Keys.HERON_LIVENESS_SUSPECT_SECS, Keys.HERON_LIVENESS_KILL_SECS, Keys.HERON_LIVENESS_KILL_ALWAYS_SECS,
)  # fmt: skip
DUMP_LEASE_MS = 1000  # writing the stacks takes a moment
TRACED_LEASE_MS = 5000  # from the last tick on, while a debugger or profiler is attached
SCHEDULER_BACKOFF = BackoffPolicy(1000, 30_000, 60_000)
log = logging.getLogger(__name__)


class Container:
    """One container. Everything happens on the event loop that created it."""

    def __init__(
        self,
        launch: Launch,
        launch_file: Path,
        number: int,
        incarnation: int,
        zygotes: Iterable[ForkedZygote] = (),
        code_user: CodeUser | None = None,
    ) -> None:
        self.launch = launch
        self.number = number
        self.incarnation = incarnation
        self.exit_code = 0
        self._launch_file = launch_file
        self._started = time.time()
        self._folders = [Path(launch.home)]  # folders that this container's processes write to
        self._loop = asyncio.get_running_loop()
        settings = launch.settings
        policy = BackoffPolicy.of(settings)
        self.supervisor = Supervisor(policy, int(setting(settings, Keys.HERON_STOP_GRACE_SECS) * 1000))
        limits = [int(setting(settings, key) * 1000) for key in LIVENESS_KEYS]
        heartbeat_ms = setting(settings, Keys.HERON_HEARTBEAT_INTERVAL_MS)
        self._tick_ms = max(20, min(heartbeat_ms, limits[1] // 4))
        self._liveness = Liveness(limits[0], limits[1], limits[2], self._tick_ms)
        self._writer = LogWriter(
            launch.log_dir,
            setting(settings, Keys.HERON_LOGGING_MAXIMUM_SIZE_MB) * MiB,
            setting(settings, Keys.HERON_LOGGING_MAXIMUM_FILES),
        )
        self._telemetry = Telemetry("__container__", container_name(number), number, 0, incarnation)
        self._memory_limit = MemoryLimit()
        self._slots: HeartbeatReader | None = None
        self._children: dict[int, Child] = {}
        self._last_lines: dict[str, LastLines] = {}
        self._code_user = code_user
        self._launcher = ProcessLauncher(
            launch, launch_file, number, policy, self._writer, self._on_started, self._on_exit, zygotes, code_user
        )
        volume = setting(settings, Keys.HERON_VOLUME_FOLDER)
        self._volume: VolumeMonitor | None = None
        if volume is not None and code_user is not None and not holds_master(number):
            self._volume = VolumeMonitor(launch, Path(volume), code_user, self._hold)
        self._reaper = OrphanReaper(not holds_master(number))
        self._scheduler_watch = SchedulerWatch(SCHEDULER_BACKOFF, scheduler_patience(number))
        self._scheduler_pid = 0
        self._alarm = DeadlineTimer(lambda: self._act(self.supervisor.tick(now_ms())))
        self._all_ended = asyncio.Event()

    async def run(self) -> None:
        """Supervise until ``stop`` and the end of every child."""
        endless = {self._loop.create_task(self._tick_forever())}
        if self._volume is not None:
            endless.add(self._loop.create_task(self._volume.run()))
        ended = self._loop.create_task(self._all_ended.wait())
        done, _ = await asyncio.wait({*endless, ended}, return_when=asyncio.FIRST_COMPLETED)
        for task in (*endless, ended):
            task.cancel()
        for task in done & endless:
            task.result()  # raises what has failed
        await self._launcher.close()
        await self._reaper.drain()
        self._writer.close()
        if self._slots is not None:
            self._slots.close()

    def stop(self, why: str) -> None:
        """Stop all children; ``run`` returns when they have ended. Idempotent."""
        if self.supervisor.stopping:
            return
        log.info("stopping: %s", why)
        self._act(self.supervisor.stop(now_ms()))
        self._launcher.stop()
        self._check_all_ended()

    def apply_observation(self, observed: StoreObservation) -> None:
        """Act on an observation of the state store."""
        if observed.killed:
            self._clean_up_by_scheduler(observed.scheduler)
            self.stop("the topology was killed")
            return
        if observed.replaced:
            self.exit_code = EXIT_REPLACED
            self.stop("the Slurm job was restarted")
            return
        if observed.plans is not None:
            self._apply_plans(observed.plans)
        holder = observed.holder
        if holder is not None and holder.incarnation > self.incarnation:
            self.exit_code = EXIT_REPLACED
            self.stop(f"container {self.number} runs elsewhere: {holder.host}, process {holder.pid}")
            return
        if not self.supervisor.stopping:
            present = observed.scheduler or self._scheduler_lives()  # a new one needs time to create its node
            if self._scheduler_watch.observe(now_ms(), present):
                self._start_scheduler("its node is missing")

    def status(self) -> ContainerStatus:
        """Return the current process table for ``Status``."""
        self._read_slots()
        return build_container_status(
            self.launch, self.number, self.incarnation, self._started, self.supervisor,
            {name: lines.lines() for name, lines in self._last_lines.items()},
            {slot: self._slots.doing(slot) for slot in self._children} if self._slots is not None else {},
            self.supervisor.held or describe_full_disk(read_disk_space(self._folders)), now_ms(), time.time(),
        )  # fmt: skip

    def metrics(self) -> ProcessMetrics:
        """Return the current metrics of this container."""
        self._read_slots()
        set_gauges(self._telemetry, self.supervisor, self._writer.dropped_lines)
        return self._telemetry.report(time.time())

    def child(self, name: str) -> Child | None:
        """Return the living child of this name, or None."""
        slots = (slot for slot, process in self.supervisor.processes.items() if process.spec.name == name)
        return next((self._children[slot] for slot in slots if slot in self._children), None)

    def _apply_plans(self, plans: ContainerPlans) -> None:
        known = {p.spec.task: p.spec.slot for p in self.supervisor.processes.values() if p.spec.is_instance}
        try:
            specs = build_process_specs(self.number, plans.packing, plans.topology.config, known)
        except KeyError:
            if plans.settled:
                self.stop(f"the topology has no container {self.number}")
            return
        if self._slots is None:
            self._slots = HeartbeatReader(self.launch.heartbeats(self.number))
            if self._code_user is not None:
                self._code_user.share(self._slots.folder, PASSED_THROUGH)
        self._launcher.configure(plans.topology)
        storage = setting(plans.topology.config, Keys.TOPOLOGY_STATEFUL_CHECKPOINT_STORAGE)
        self._folders = [Path(self.launch.home), checkpoint_folder(storage, self.launch.home).folder]
        if self._volume is not None:
            self._volume.set_plan(plans.packing, plans.topology.config)
        self._act(self.supervisor.want(now_ms(), specs, settled=plans.settled))

    async def _tick_forever(self) -> None:
        last_ms = now_ms()
        while True:
            await asyncio.sleep(self._tick_ms / 1000)
            woke_ms = now_ms()
            self._tick(woke_ms - last_ms)
            last_ms = woke_ms

    def _tick(self, passed_ms: int) -> None:
        beats = self._read_slots()
        silent = self._liveness.silent_slots()
        cpu = {slot: seconds for slot in silent if (seconds := self._cpu_seconds(slot)) is not None}
        for slot in silent:
            child = self._children.get(slot)
            if child is not None and traced(child.pid):
                self._liveness.extend(slot, TRACED_LEASE_MS)
        for silence in self._liveness.tick(passed_ms, beats, cpu):
            name = self.supervisor.processes[silence.slot].spec.name
            if silence.judgement is Judgement.SUSPECT:
                log.warning("%s has been silent for %.1f s", name, silence.silence_ms / 1000)
                child = self._children.get(silence.slot)
                if child is not None and catches(child.pid, signal.SIGUSR1):
                    child.send_signal(signal.SIGUSR1)  # the stacks of its threads go to its log
                    self._liveness.extend(silence.slot, DUMP_LEASE_MS)
            else:
                log.error("%s is %s", name, silence.reason())
                self._act(self.supervisor.kill(silence.slot, silence.reason()))
        self._act(self.supervisor.tick(now_ms()))

    def _read_slots(self) -> dict[int, int]:
        beats: dict[int, int] = {}
        if self._slots is None:
            return beats
        for slot in self._children:
            beats[slot], phase = self._slots.read(slot)
            self.supervisor.set_phase(now_ms(), slot, phase is ProcessPhase.RUNNING)
        return beats

    def _cpu_seconds(self, slot: int) -> float | None:
        child = self._children.get(slot)
        if child is None:
            return None
        try:
            times = psutil.Process(child.pid).cpu_times()
        except psutil.Error:
            return None
        return times.user + times.system

    def _act(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Start(spec, restarts):
                    self._start(spec, restarts)
                case Terminate(slot, _):
                    self._signal(slot, signal.SIGTERM)
                case Kill(slot, _):
                    self._signal(slot, signal.SIGKILL)
                case FindReplacement(slot):
                    # The store watch finds a newer container, if one exists.
                    log.warning("%s exited because it was replaced", self.supervisor.processes[slot].spec.name)
        self._alarm.set(self.supervisor.next_deadline_ms())  # restarts may be due between two ticks

    def _start(self, spec: ProcessSpec, restarts: int) -> None:
        assert self._slots is not None
        log.info("starting %s%s", spec.name, f" (restart {restarts})" if restarts else "")
        if restarts:
            self._telemetry.count(f"__restarts/{spec.name}")
        beats = self._slots.make(spec.slot)
        if spec.is_instance and self._code_user is not None:
            self._code_user.share(beats, TALKED_THROUGH)
        lines = self._last_lines.setdefault(spec.name, LastLines())
        self._launcher.start(spec, lines)

    def _on_started(self, slot: int, child: Child) -> None:
        self._children[slot] = child
        self._liveness.watch(slot)
        self._act(self.supervisor.on_started(now_ms(), slot, child.pid))

    def _on_exit(self, slot: int, code: int | None, error: str) -> None:
        spec = self.supervisor.processes[slot].spec
        self._reaper.schedule()
        self._children.pop(slot, None)
        self._liveness.forget(slot)
        reason = error or exit_in_words(code, self._last_lines[spec.name].last())
        if code == -signal.SIGKILL:
            reason = self._memory_limit.explain(reason)
        is_requested = self.supervisor.stopping or code == EXIT_OTHER_SETTINGS
        (log.info if is_requested else log.error)("%s has ended: %s", spec.name, reason)
        expected = code == EXIT_OTHER_SETTINGS
        self._act(self.supervisor.on_exit(now_ms(), slot, reason, replaced=code == EXIT_REPLACED, expected=expected))
        self._check_all_ended()

    def _hold(self, why: str) -> None:
        """Apply the result of a volume scan: ``why`` no task may run, or ""."""
        before = self.supervisor.held
        if not (why or before):
            return
        if not before:
            log.error("killing all tasks: %s", why)
            self._telemetry.exception("VolumeFull", why, "", time.time())
        elif not why:
            log.info("the volume has room again: starting the tasks")
        self._act(self.supervisor.hold(now_ms(), why))

    def _check_all_ended(self) -> None:
        if self.supervisor.stopping and self.supervisor.all_ended():
            self._all_ended.set()

    def _signal(self, slot: int, number: int) -> None:
        child = self._children.get(slot)
        if child is not None:
            child.send_signal(number)

    def _clean_up_by_scheduler(self, present: bool) -> None:
        """Start a scheduler to clean up if that of a killed topology is dead."""
        local_scheduler = setting(self.launch.settings, Keys.HERON_SCHEDULER) == "local"
        if self.number == MASTER_CONTAINER and local_scheduler and not present and not self.supervisor.stopping:
            self._start_scheduler("to clean up")

    def _start_scheduler(self, why: str) -> None:
        try:
            self._scheduler_pid = local.start(self.launch, self._launch_file)
            log.warning("restarted the scheduler (%s): process %d", why, self._scheduler_pid)
        except (SchedulerError, OSError) as error:
            log.error("cannot restart the scheduler: %s", error)

    def _scheduler_lives(self) -> bool:
        """Return True while a scheduler that this process started lives. Reaps it."""
        try:
            return self._scheduler_pid > 0 and os.waitpid(self._scheduler_pid, os.WNOHANG)[0] == 0
        except ChildProcessError:
            return False


def build_container_status(
    launch: Launch,
    number: int,
    incarnation: int,
    started: float,
    supervisor: Supervisor,
    last_lines: Mapping[str, tuple[str, ...]],
    doing: Mapping[int, str],
    trouble: str,
    now_ms: int,
    now: float,
) -> ContainerStatus:
    """Return the status of the container: heron_container first, then the processes by slot.

    Args:
        launch: Launch of the topology.
        number: Number of the container.
        incarnation: Incarnation of heron_container.
        started: When heron_container started, in seconds since 1970.
        supervisor: Process table.
        last_lines: Last log lines by process name.
        doing: Current activity by slot.
        trouble: Problem of the container, or "".
        now_ms: Monotonic time of ``now``.
        now: Current time in seconds since 1970.
    """
    state = ProcessState.STOPPED if supervisor.stopping else ProcessState.RUNNING
    own = ProcessStatus("heron_container", container_name(number), number, "", 0, os.getpid(), state, started)
    others = [
        ProcessStatus(
            kind=process.spec.kind,
            name=process.spec.name,
            container=number,
            component=process.spec.component,
            task=process.spec.task,
            pid=process.pid,
            state=process.state,
            since=now - (now_ms - process.since_ms) / 1000,
            restarts=process.restarts,
            last_error=process.last_error,
            last_lines=last_lines.get(process.spec.name, ()),
            doing=doing.get(slot, ""),
            young_deaths=process.backoff.young_deaths,
        )
        for slot, process in sorted(supervisor.processes.items())
    ]
    return ContainerStatus(number, launch.host, incarnation, (own, *others), trouble)


def set_gauges(telemetry: Telemetry, supervisor: Supervisor, dropped_lines: int) -> None:
    """Set the gauges of the process table."""
    for process in supervisor.processes.values():
        telemetry.gauge(f"__process-up/{process.spec.name}", float(process.state is ProcessState.RUNNING))
    telemetry.gauge("__log-lines-dropped", float(dropped_lines))


def read_disk_space(folders: Iterable[Path]) -> Iterator[DiskSpace]:
    """Yield the space on the disk of each folder, except those that cannot be read."""
    for folder in folders:
        try:
            status = os.statvfs(folder)
        except OSError:
            continue
        unit = status.f_frsize
        yield DiskSpace(str(folder), status.f_bavail * unit, status.f_blocks * unit, status.f_favail, status.f_files)
