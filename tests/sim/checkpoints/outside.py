"""What stands outside of the topology: the state store, the storage of snapshots, and the system a sink writes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from heron_runtime.model.checkpoints import CheckpointRecord, Manifest, initial_manifest
from heron_runtime.model.plan import Generation, GenerationPhase

from .program import Output


class Violation(AssertionError):
    """A law does not hold."""


@dataclass(frozen=True)
class Plan:
    """What of the physical plan matters here: the tasks of each component and the table of the keyed one."""

    version: int
    generation: Generation
    tasks: Mapping[str, tuple[int, ...]]
    table: tuple[int, ...]
    wanted: tuple[str, int] | None = None  # the owner's update: so many tasks of this component
    back: int = 0  # the older checkpoint that the owner wants to go back to; 0: none

    @property
    def all_tasks(self) -> tuple[int, ...]:
        return tuple(sorted(task for tasks in self.tasks.values() for task in tasks))

    def component_of(self, task: int) -> str:
        return next(name for name, tasks in self.tasks.items() if task in tasks)


@dataclass
class Transaction:
    """A master's write: it checks the epoch and what it replaces."""

    epoch: int
    plan: tuple[Plan, Plan] | None = None  # what is expected, what shall stand
    record: tuple[CheckpointRecord, CheckpointRecord] | None = None


@dataclass
class Store:
    """One node for the plan, one for the record, one for the epoch."""

    plan: Plan
    record: CheckpointRecord = field(default_factory=lambda: CheckpointRecord(1))
    epoch: int = 0
    plans: dict[int, Plan] = field(default_factory=dict)  # by generation, for the oracle

    def apply(self, wanted: Transaction) -> str:
        """``done``, ``refused`` or ``not owner``."""
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
    """Files of parts, and manifests; both are whole or not there."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.manifests: dict[int, Manifest] = {0: initial_manifest("sim")}

    def read(self, name: str) -> bytes:
        if name not in self.files:
            raise Violation(f"S5: {name} is read and is not there")
        return self.files[name]


class Outside:
    """A system with transactions: what is prepared under a token is seen once the token is committed.

    A restore to an older checkpoint begins a new *history*: of what has been seen only what that checkpoint and those
    before it name belongs to it. What the others name is *struck off*: it may be aborted, or committed late by a
    process that has not heard of it yet, and counts in no history that goes on.
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
        """A new history, in which complete checkpoints have named these."""
        self.struck |= self.named - named
        self.named = named
        self.seen = Counter(row for token in named for row in self.committed.get(token, ()))
