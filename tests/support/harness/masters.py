"""Test data for topology masters: a topology, its packing plan, registrations, and masters on one memory store."""

from __future__ import annotations

from collections.abc import Mapping

from heron_runtime.launch import Launch
from heron_runtime.model.plan import PackingPlan, PhysicalPlan, PlanVersion, StreamManagerInfo
from heron_runtime.model.records import ExecutionState, MasterLocation
from heron_runtime.model.topology import GroupingKind, GroupingSpec, InputSpec, TopologyDefinition, TopologyState
from heron_runtime.state import paths
from heron_runtime.state.memory import MemoryStore, MemoryTree
from heron_runtime.state.store import Create, SessionState, StateStore, StoreError
from heron_runtime.wire import message_codecs
from heron_runtime.wire.master import Register
from tests.support.definitions import component, packing_of, topology_spec
from topology_master.core import events as e
from topology_master.core.master import TopologyMaster
from topology_master.core.mastership import MasterRole
from topology_master.shell.store import SESSIONS, MasterStore, read_stored

NAME, ID = "words", "words-1234"


def definition(config: Mapping[str, object] | None = None) -> TopologyDefinition:
    by_word = InputSpec("word", "default", GroupingSpec(GroupingKind.FIELDS, ("word",)))
    word = component("word", parallelism=2, fields=("word",))
    count = component("count", by_word, parallelism=2, fields=())
    return topology_spec(NAME, word, count, number="1234", config=config)


def packing(containers: int = 2) -> PackingPlan:
    """Return a packing plan: container n holds word task 2n-1 and count task 2n."""
    return packing_of(NAME, {n: {2 * n - 1: "word", 2 * n: "count"} for n in range(1, containers + 1)})


def execution(state: TopologyState = TopologyState.RUNNING) -> ExecutionState:
    return ExecutionState(NAME, ID, "local", "me", "default", state)


def info(container: int, incarnation: int = 1, port: int = 0) -> StreamManagerInfo:
    return StreamManagerInfo(container, "127.0.0.1", port or 1000 * container + incarnation, incarnation)


def registration(container: int, incarnation: int = 1, plan: PlanVersion = PlanVersion()) -> Register:  # noqa: B008
    return Register(1, ID, info(container, incarnation), (), plan)


def submit(
    store: StateStore,
    state: TopologyState = TopologyState.RUNNING,
    containers: int = 2,
    config: Mapping[str, object] | None = None,
) -> None:
    store.commit(
        [
            Create(paths.topology(NAME), message_codecs.TOPOLOGY.encode(definition(config))),
            Create(paths.packing_plan(NAME), message_codecs.PACKING_PLAN.encode(packing(containers))),
            Create(paths.execution_state(NAME), message_codecs.EXECUTION_STATE.encode(execution(state))),
        ]
    )


class Node:
    """Master core on a memory store; one step runs one store request or delivers one event."""

    def __init__(self, tree: MemoryTree, port: int, lease_ms: int = 10_000) -> None:
        self.store = MemoryStore(tree)
        self.store.open()
        self.core = TopologyMaster(ID, ("h", port, port), lease_ms)
        self.events: list[e.Event] = []
        self.requests: list[object] = [e.ReadStore()]
        self.effects: list[e.Effect] = []
        self.led: list[int] = []
        launch = Launch("local", "me", "default", NAME, ID, "memory://", "/nowhere", "/nowhere")
        self._shell = MasterStore(self.store, launch, MasterLocation(ID, "h", port, 0, port), self.events.append)
        self.store.on_session(self._session)
        for path in (paths.execution_state(NAME), paths.packing_plan(NAME), paths.master(NAME)):
            self.store.watch(path, lambda _: self.requests.append(e.ReadStore()))

    def _session(self, state: SessionState) -> None:
        self.events.append(e.SessionChanged(SESSIONS[state]))

    @property
    def leading(self) -> bool:
        return self.core.mastership.role is MasterRole.LEADING

    @property
    def idle(self) -> bool:
        return not self.events and not self.requests

    def tell(self, *events: e.Event, now_ms: int = 0) -> list[e.Effect]:
        """Deliver events; return the effects, store requests included."""
        found: list[e.Effect] = []
        for event in events:
            for effect in self.core.handle(now_ms, event):
                found.append(effect)
                if isinstance(effect, e.ReadStore | e.Campaign | e.Resign | e.CommitTransaction):
                    self.requests.append(effect)
                if isinstance(effect, e.StartLeading):
                    self.led.append(effect.epoch)
            self.core.check()
        self.effects += found
        return found

    def step(self) -> None:
        """Deliver one event, or otherwise run one request."""
        if self.events:
            self.tell(self.events.pop(0))
        elif self.requests:
            self._run(self.requests.pop(0))

    def settle(self) -> None:
        """Step until nothing is left to do."""
        for _ in range(200):
            if self.idle:
                return
            self.step()
        raise AssertionError("the master never comes to rest")

    def settle_events(self) -> None:
        """Deliver queued events without running requests."""
        while self.events:
            self.tell(self.events.pop(0))

    def _run(self, request: object) -> None:
        if isinstance(request, e.ReadStore):
            try:
                self.events.append(e.StoreRead(read_stored(self.store, NAME)))
            except StoreError:
                self.requests.append(request)
            return
        result, versions = self._shell.commit(request)  # type: ignore[arg-type]
        self._shell.tell(request, result, versions)  # type: ignore[arg-type]


def sent_plans(effects: list[e.Effect]) -> list[PhysicalPlan]:
    return [effect.plan for effect in effects if isinstance(effect, e.SendPlan)]
