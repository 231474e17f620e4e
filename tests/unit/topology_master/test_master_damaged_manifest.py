"""Damaged manifest of the last complete checkpoint: decisions stop, and users may restore an older one."""

from __future__ import annotations

import tempfile
from pathlib import Path

from heron_runtime.model.checkpoints import Manifest
from heron_runtime.model.plan import GenerationPhase
from heron_runtime.wire.errors import MalformedMessage
from tests.support.harness.stateful_masters import StateNode, begun
from topology_master.core import events as e

Answers = list[e.AnswerRequest]


def answers(effects: list[e.Effect]) -> Answers:
    return [effect for effect in effects if isinstance(effect, e.AnswerRequest)]


def damaged(home: Path, checkpoints: int = 3) -> StateNode:
    """Return a new master after the last manifest was truncated; two complete checkpoints are kept."""
    node = begun(home)
    assert [node.checkpoint() for _ in range(checkpoints)] == list(range(1, checkpoints + 1))
    path = sorted((home / "checkpoints" / "manifests").iterdir())[-1]
    path.write_bytes(path.read_bytes()[:-5])
    node.die()
    return StateNode(home, node.played, port=2).register()


def manifests(node: StateNode) -> dict[int, Manifest | None]:
    """Read the manifests as the shell does."""
    found: dict[int, Manifest | None] = {}
    for number in node.folder.manifests():
        try:
            found[number] = node.folder.read_manifest(number)
        except MalformedMessage:
            found[number] = None
    return found


def back(node: StateNode, number: int, *, repeat: bool = True) -> Answers:
    there = manifests(node)
    return answers(node.tell(e.RestoreRequested(9, 0, number, repeat_output=repeat, manifests=there)))


def test_damaged_manifest_stops_decisions_and_is_named() -> None:
    with tempfile.TemporaryDirectory() as name:
        node = damaged(Path(name))
        status = node.core.status().tasks_state
        assert "checkpoint 3: its manifest below" in status.storage_fault
        assert "is not whole" in status.storage_fault
        for asked in (e.CheckpointRequested(1, wait=True), e.RestoreRequested(2)):
            (answer,) = answers(node.tell(asked))
            assert answer.final
            assert "checkpoint 3: its manifest below" in answer.error
            assert "heron restore … NUMBER --repeat-output" in answer.error
        node.tick(60_000)
        assert (node.generation.number, node.record.complete) == (1, 3)


def test_restore_to_an_older_checkpoint_requires_repeat_output() -> None:
    with tempfile.TemporaryDirectory() as name:
        node = damaged(Path(name))
        (refused,) = back(node, 2, repeat=False)
        assert refused.final
        assert "is not whole" in refused.error
        assert "output written after checkpoint 2, up to 3, would be written again" in refused.error
        for number, name_of_it in ((1, "checkpoint 1"), (3, "the last checkpoint"), (4, "checkpoint 4")):
            (refused,) = back(node, number)
            assert refused.final
            assert refused.error.startswith(f"{name_of_it} cannot be gone back to")
            assert refused.error.endswith("whole, and kept, are 2"), refused.error
        assert node.generation.number == 1
        (answer,) = back(node, 2)
        assert answer.status is not None
        now = node.generation
        assert (now.number, now.phase, now.restore_from) == (2, GenerationPhase.RESTORING, 2)
        assert "restore requested, and later checkpoints are discarded: checkpoint 3: its" in now.cause
        assert (node.record.generation, node.record.begun, node.record.complete) == (2, 3, 2)
        assert node.core.status().tasks_state.storage_fault == ""


def test_restore_to_an_older_checkpoint_begins_a_new_history() -> None:
    with tempfile.TemporaryDirectory() as name:
        node = damaged(Path(name))
        back(node, 2)
        node.running()
        turn = node.folder.read_manifest(2).turn
        assert node.checkpoint() == 4, "numbers are not used again"
        manifest = node.folder.read_manifest(4)
        assert manifest.turn == turn + 1
        assert {part.checkpoint for layers in manifest.layers.values() for part in layers} <= {1, 2, 4}
        for number in (5, 6, 7):
            assert node.checkpoint() == number
        assert 3 not in node.folder.manifests(), "what is damaged goes in its turn"
        assert not [name for name in node.folder.parts() if name.split("-")[1] == "3"]
        node.die()
        other = StateNode(Path(name), node.played, port=3).register()
        assert other.core.status().tasks_state.storage_fault == ""


def test_abandoned_restore_request_is_not_decided_later() -> None:
    with tempfile.TemporaryDirectory() as name:
        node = damaged(Path(name))
        node.hold = (e.CommitTransaction,)
        assert back(node, 2) == []
        node.hold = ()
        node.lose_store()
        node.tick(10_000)
        assert (node.generation.number, node.record.complete) == (1, 3)
