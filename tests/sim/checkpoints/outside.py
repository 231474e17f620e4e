"""Systems outside of the topology: the state store, the storage of snapshots, and the target of a sink."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from heron_runtime.model.checkpoints import CheckpointRecord, Manifest, initial_manifest
from heron_runtime.model.plan import Generation, GenerationPhase

from .program import Output


class Violation(AssertionError):
    """Violation of an invariant."""


@dataclass(frozen=True)
class Plan:
    """Part of the physical plan that matters here: the tasks of each component, and the table of the keyed one."""

    version: int
    generation: Generation
    tasks: Mapping[str, tuple[int, ...]]
    table: tuple[int, ...]
    wanted: tuple[str, int] | None = None  # the owner's update: this many tasks of this component
    back: int = 0  # the older checkpoint to which the owner returns; 0: none

    @property
    def all_tasks(self) -> tuple[int, ...]:
        return tuple(sorted(task for tasks in self.tasks.values() for task in tasks))

    def component_of(self, task: int) -> str:
        return next(name for name, tasks in self.tasks.items() if task in tasks)


@dataclass
class Transaction:
    """Write of a master, which checks the epoch and the value it replaces."""

    epoch: int
    plan: tuple[Plan, Plan] | None = None  # expected and new plan
    record: tuple[CheckpointRecord, CheckpointRecord] | None = None


@dataclass
class Store:
    """State store with one node each for the plan, the record and the epoch."""

    plan: Plan
    record: CheckpointRecord = field(default_factory=lambda: CheckpointRecord(1))
    epoch: int = 0
    plans: dict[int, Plan] = field(default_factory=dict)  # by generation, for the oracle

    def apply(self, wanted: Transaction) -> str:
        """Apply a transaction; return ``done``, ``refused`` or ``not owner``."""
        if wanted.epoch != self.epoch:
            return "not owner"
        if wanted.plan and wanted.plan[0].version != self.plan.version:
            return "refused"
        if wanted.record and wanted.record[0] != self.record:
            return "refused"
        if wanted.plan:
            self.plan = replace(wanted.plan[1], version=self.plan.version + 1)
            self.plans[self.plan.generation.number] = self.plan
        if wanted.record:
            self.record = wanted.record[1]
        return "done"

    @property
    def running(self) -> bool:
        return self.plan.generation.phase is GenerationPhase.RUNNING


class Storage:
    """Storage of part files and manifests, both of which are written atomically."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.manifests: dict[int, Manifest] = {0: initial_manifest("sim")}

    def read(self, name: str) -> bytes:
        if name not in self.files:
            raise Violation(f"S5: {name} is read and is not there")
        return self.files[name]


class Outside:
    """System with transactions: output prepared under a token becomes visible when the token is committed.

    A restore to an older checkpoint begins a new *history*: only output named by that checkpoint and its predecessors
    belongs to it. Output that other checkpoints name is *struck off*: it may be aborted, or committed late by a process
    that does not yet know of the restore, and does not count in any later history.
    """

    def __init__(self) -> None:
        self.prepared: dict[str, tuple[Output, ...]] = {}
        self.committed: dict[str, tuple[Output, ...]] = {}
        self.seen: Counter[Output] = Counter()  # in this history
        self.named: set[str] = set()  # by a complete checkpoint of this history
        self.struck: set[str] = set()

    def prepare(self, token: str, rows: list[Output]) -> None:
        self.prepared[token] = tuple(rows)

    def commit(self, token: str) -> None:
        if token in self.committed:
            return
        if token not in self.named | self.struck:
            raise Violation(f"S2: {token} is committed, and no complete checkpoint names it")
        if token not in self.prepared:
            if token in self.struck:
                return
            raise Violation(f"S6: {token} is committed, and nothing is prepared under it")
        self.committed[token] = rows = self.prepared.pop(token)
        if token in self.struck:
            return
        self.seen.update(rows)
        if self.seen and max(self.seen.values()) > 1:
            raise Violation(f"S5: {token} brings something a second time")

    def abort(self, token: str) -> None:
        if token in self.prepared:
            if token in self.named:
                raise Violation(f"S6: {token} is aborted, and a complete checkpoint names it")
            del self.prepared[token]

    def go_back(self, named: set[str]) -> None:
        """Begin a new history, in which complete checkpoints have named these tokens."""
        self.struck |= self.named - named
        self.named = named
        self.seen = Counter(row for token in named for row in self.committed.get(token, ()))
