"""Topology master core of a stateful topology, on a real files store and real checkpoint files.

The stream managers and tasks are stubs that only exchange messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from heron_runtime.checkpoint_files import CheckpointFolder
from heron_runtime.launch import Launch
from heron_runtime.model.checkpoints import (
    NO_WISH,
    CheckpointCommand,
    CheckpointRecord,
    StatePart,
    TaskReport,
    groups_of,
)
from heron_runtime.model.plan import Generation, ParticipantId, PhysicalPlan, stream_manager_of, task_participant
from heron_runtime.model.records import MasterLocation
from heron_runtime.state import open_store, paths
from heron_runtime.wire import message_codecs
from heron_runtime.wire.master import Heartbeat, ParticipantReport, Register
from tests.support.harness.masters import ID, NAME, info, submit
from topology_master.core import events as e
from topology_master.core.master import TopologyMaster
from topology_master.shell.manifests import ManifestFiles
from topology_master.shell.store import MasterStore

CONFIG = {
    "topology.reliability.mode": "EFFECTIVELY_ONCE",
    "topology.stateful.checkpoint.interval.secs": 1.0,
    "topology.stateful.checkpoint.timeout.secs": 5.0,
    "topology.stateful.checkpoint.keep": 2,
}
LEASE_MS = 3_000
CONTAINERS = (1, 2)  # container n holds word task 2n-1 and count task 2n
TASKS = (1, 2, 3, 4)


class StubParticipants:
    """Stubs of stream managers and tasks: received commands and reports."""

    def __init__(self) -> None:
        self.incarnations: dict[ParticipantId, int] = dict.fromkeys(
            [*map(stream_manager_of, CONTAINERS), *map(task_participant, TASKS)], 5
        )
        self.reports: dict[ParticipantId, TaskReport] = dict.fromkeys(self.incarnations, TaskReport(0))
        self.plan: PhysicalPlan | None = None
        self.wish: CheckpointCommand = NO_WISH

    def hear(self, effect: e.Effect) -> None:
        if isinstance(effect, e.SendPlan) and (self.plan is None or effect.plan.version > self.plan.version):
            self.plan = effect.plan
        if isinstance(effect, e.SendHeartbeatReply):
            self.wish = effect.wish

    @property
    def generation(self) -> int:
        return self.plan.generation.number if self.plan is not None else 0

    def restored(self, *places: ParticipantId) -> None:
        for place in places or self.incarnations:
            self.reports[place] = TaskReport(self.generation, restored=True)

    def aligned(self, *tasks: int) -> None:
        for place in map(task_participant, tasks or TASKS):
            self.reports[place] = replace(self.reports[place], aligned=self.wish.under)

    def stored(self, folder: CheckpointFolder, number: int, turn: int, *tasks: int) -> None:
        """Write and report the part of each task."""
        assert self.plan is not None
        for task in tasks or TASKS:
            component, place = self.plan.component_of(task), task_participant(task)
            groups = groups_of(self.plan.key_group_table("count"), task) if component == "count" else 0
            part = StatePart(
                component, task, self.incarnations[place], self.generation, number, turn, 3, "sum", groups
            )  # fmt: skip
            folder.write_part(part.name, [b"abc"])
            self.reports[place] = replace(self.reports[place], stored=(part,))

    def started_anew(self, place: ParticipantId) -> None:
        self.incarnations[place] += 1
        self.reports[place] = TaskReport(0)

    def heartbeat(self, container: int) -> Heartbeat:
        places = [stream_manager_of(container), task_participant(2 * container - 1), task_participant(2 * container)]
        return Heartbeat(reports=tuple(ParticipantReport(p, self.incarnations[p], self.reports[p]) for p in places))


class StateNode:
    """Master driven step by step. Every effect runs at once unless ``hold`` keeps it back."""

    def __init__(
        self, home: Path, played: StubParticipants, port: int = 1, config: Mapping[str, object] = CONFIG
    ) -> None:
        self.played, self.now_ms = played, 0
        self.store = open_store(f"files://{home}/state")
        self.store.open()
        launch = Launch("local", "me", "default", NAME, ID, f"files://{home}/state", str(home), str(home))
        self.core = TopologyMaster(ID, ("h", port, port), LEASE_MS, "digest", utc=1_000.0)
        self.folder = CheckpointFolder(home / "checkpoints")
        self.effects: list[e.Effect] = []
        self.waiting: list[e.Effect] = []  # kept back
        self.hold: tuple[type, ...] = ()
        self.answers_lost = False
        self._port = port
        self._files = ManifestFiles(launch, lambda event: None, lambda: None)
        self._events: list[e.Event] = []
        location = MasterLocation(ID, "h", port, 0, port)
        self._shell = MasterStore(self.store, launch, location, self._events.append, self._files.add_manifest)
        if self.store.get(paths.execution_state(NAME)) is None:
            submit(self.store, config=config)
        self.read()

    def read(self) -> None:
        """Read a watched node that has changed."""
        self._do(e.ReadStore())
        self.tell()

    def register(self) -> StateNode:
        for container in CONTAINERS:
            incarnation = self.played.incarnations[stream_manager_of(container)]
            self.tell(e.RegistrationReceived(self.link(container), Register(1, ID, info(container, incarnation))))
        return self

    def link(self, container: int) -> int:
        return 100 * self.played.incarnations[stream_manager_of(container)] + container

    def tell(self, *events: e.Event) -> list[e.Effect]:
        """Deliver events, and run what follows from them."""
        before = len(self.effects)
        self._events += events
        while self._events:
            for effect in self.core.handle(self.now_ms, self._events.pop(0)):
                self.effects.append(effect)
                self.played.hear(effect)
                if isinstance(effect, self.hold):
                    self.waiting.append(effect)
                else:
                    self._do(effect)
            self.core.check()
        return self.effects[before:]

    def let_go(self) -> None:
        """Run the effects that were kept back."""
        waiting, self.waiting, self.hold = self.waiting, [], ()
        for effect in waiting:
            self._do(effect)
        self.tell()

    def lose_store(self) -> None:
        """Interrupt the store for a moment; transactions that were kept back never reach it."""
        self.waiting = [effect for effect in self.waiting if isinstance(effect, e.WriteManifest)]
        self.tell(e.SessionChanged(e.Session.SUSPENDED), e.SessionChanged(e.Session.CONNECTED))

    def _do(self, effect: e.Effect) -> None:
        if isinstance(effect, e.ReadStore):
            self._events.append(e.StoreRead(self._shell._look()))
        elif isinstance(effect, e.Campaign | e.Resign | e.CommitTransaction):
            result, versions = self._shell.commit(effect)
            if self.answers_lost and isinstance(effect, e.CommitTransaction):
                self.answers_lost, result = False, e.WriteResult.UNKNOWN
            self._shell.tell(effect, result, versions)
        elif isinstance(effect, e.WriteManifest):
            why = ""
            try:
                self.folder.write_manifest(effect.manifest)
            except OSError as error:
                why = str(error)
            self._events.append(e.ManifestWritten(effect.manifest.checkpoint, why))
        elif isinstance(effect, e.RemoveOldCheckpoints):
            self._files.remove_now(effect)

    def beat(self, *containers: int) -> list[e.Effect]:
        """Deliver a heartbeat of each of these containers, or of all."""
        heard = [e.HeartbeatReceived(self.link(c), self.played.heartbeat(c)) for c in containers or CONTAINERS]
        return self.tell(*heard)

    def tick(self, ms: int = 200, *silent: int) -> None:
        """Advance the clock; all containers except the ``silent`` ones keep sending heartbeats."""
        for _ in range(max(1, ms // 200)):
            self.now_ms += min(ms, 200)
            self.tell(e.MasterTick())
            self.beat(*[c for c in CONTAINERS if c not in silent])

    def die(self) -> None:
        self.store.close()

    @property
    def generation(self) -> Generation:
        node = self.store.get(paths.physical_plan(NAME))
        assert node is not None
        return message_codecs.PHYSICAL_PLAN.decode(node.data).generation

    @property
    def record(self) -> CheckpointRecord:
        node = self.store.get(paths.checkpoints(NAME))
        assert node is not None
        return message_codecs.CHECKPOINT_RECORD.decode(node.data)

    def notes(self) -> list[str]:
        return [effect.text for effect in self.effects if isinstance(effect, e.LogNote)]

    def running(self) -> StateNode:
        """Report all restores, so that the generation runs."""
        self.played.restored()
        self.beat()
        return self

    def checkpoint(self) -> int:
        """Complete a checkpoint; return its number."""
        self.tick(1_000)
        number, turn = self.played.wish.under, self.played.wish.turn
        assert number, "none has begun"
        self.played.aligned()
        self.beat()
        self.played.stored(self.folder, number, turn)
        self.beat()
        return number


def begun(home: Path) -> StateNode:
    """Return the master of a topology that has started to run."""
    return StateNode(home, StubParticipants()).register().running()
