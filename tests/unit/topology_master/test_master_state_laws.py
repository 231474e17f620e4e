"""Any order of events: the store stays consistent, and a checkpoint completes once faults end."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.checkpoints import TaskReport
from heron_runtime.model.plan import GenerationPhase, stream_manager_of, task_participant
from heron_runtime.model.topology import TopologyState
from tests.support.harness.masters import registration
from tests.support.harness.stateful_masters import CONTAINERS, TASKS, StateNode, begun
from topology_master.core import events as e

ACTIONS = (
    "time", "beat", "beat one", "align", "align one", "store", "decline", "restored", "task anew", "manager anew",
    "lost", "answer lost", "kept back", "let go", "store away", "pause", "resume", "new master",
)  # fmt: skip


class Law:
    """Drives a master and checks the invariants of the store after each step."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.node = begun(home)
        self.masters = 1
        self.before = self.node.record
        self.turn = -1

    def step(self, action: str, task: int) -> None:
        node, played = self.node, self.node.played
        place, container = task_participant(task), (task + 1) // 2
        match action:
            case "time":
                node.tick(1_000, *(() if task > 2 else (container,)))
            case "beat":
                node.beat()
            case "beat one":
                node.beat(container)
            case "align":
                played.aligned()
            case "align one":
                played.aligned(task)
            case "store":
                self.store()
            case "decline":
                played.reports[place] = replace(played.reports[place], declined=played.wish.under, declined_why="full")
            case "restored":
                played.restored()
            case "task anew":
                played.started_anew(place)
            case "manager anew":
                played.started_anew(stream_manager_of(container))
                self.register(container)
            case "lost":
                played.reports[place] = TaskReport(played.generation, lost="a frame is missing")
            case "answer lost":
                node.answers_lost = True
            case "kept back":
                node.hold = (e.WriteManifest, e.CommitTransaction)
            case "let go":
                node.let_go()
            case "store away":
                node.lose_store()
            case "pause" | "resume":
                node.tell(e.StateRequested(1, TopologyState.PAUSED if action == "pause" else TopologyState.RUNNING))
            case "new master":
                node.die()
                self.masters += 1
                self.node = StateNode(self.home, played, self.masters).register()
        self.hold()

    def register(self, container: int) -> None:
        incarnation = self.node.played.incarnations[stream_manager_of(container)]
        self.node.tell(e.RegistrationReceived(self.node.link(container), registration(container, incarnation)))

    def store(self) -> None:
        """Let all aligned tasks write their parts."""
        reports = self.node.played.reports
        for task in TASKS:
            number = reports[task_participant(task)].aligned
            if number and reports[task_participant(task)].generation == self.node.played.generation:
                turn = self.turns.get(number)
                if turn is not None:
                    self.node.played.stored(self.node.folder, number, turn, task)

    @property
    def turns(self) -> dict[int, int]:
        """Return the turn of each announced checkpoint."""
        return {
            x.wish.under: x.wish.turn for x in self.node.effects if isinstance(x, e.SendHeartbeatReply) and x.wish.under
        }

    def hold(self) -> None:
        node, before = self.node, self.before
        now, generation = node.record, node.generation
        assert generation.number == now.generation
        assert now.generation >= before.generation
        assert now.begun >= before.begun
        assert now.complete >= before.complete
        assert generation.restore_from <= now.complete
        if now.generation > before.generation:
            assert generation.restore_from == now.complete, "from the last complete one, as it is when g begins"
        if now.complete:
            manifest = node.folder.read_manifest(now.complete)
            assert manifest.files <= set(node.folder.parts()), "what is restored from is there"
            assert manifest.turn == self.turn + (now.complete > before.complete), "it is built on the one before it"
            self.turn = manifest.turn
        self.before = now

    def come_to_rest(self) -> None:
        """Run without faults until a checkpoint completes (S3)."""
        self.node.let_go()
        for container in CONTAINERS:
            self.register(container)
        complete = self.node.record.complete
        for _ in range(300):
            played = self.node.played
            for place, report in played.reports.items():
                if report.generation != played.generation or report.lost or report.declined > played.wish.over:
                    played.restored(place)
            if played.wish.under and played.wish.generation == played.generation:
                played.aligned()
                self.node.beat()
                self.store()
            self.node.tick(200)
            self.hold()
            if self.node.record.complete > complete and self.node.generation.phase is GenerationPhase.RUNNING:
                return
        raise AssertionError(f"no checkpoint completes: {self.node.core.status().tasks_state}")


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from(TASKS)), max_size=40))
def test_store_stays_consistent_and_checkpoints_continue(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as home:
        law = Law(Path(home))
        for action, task in steps:
            law.step(action, task)
        law.come_to_rest()
        law.node.die()


def test_checkpoints_continue_after_a_fault_at_each_step() -> None:
    way = ["time", "beat", "align", "beat", "store", "beat", "time"]
    for fault in ("task anew", "manager anew", "lost", "decline", "answer lost", "kept back", "new master", "pause"):
        for at in range(len(way) + 1):
            with tempfile.TemporaryDirectory() as home:
                law = Law(Path(home))
                for action in [*way[:at], fault, *way[at:]]:
                    law.step(action, 3)
                law.come_to_rest()
                law.node.die()
