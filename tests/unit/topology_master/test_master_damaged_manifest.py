"""The last complete checkpoint's manifest is damaged: nothing is decided, but people may go back to an older one."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from laws import each_law, each_mutation
from state_world import StateNode, begun

from heron_runtime.model.checkpoints import Manifest
from heron_runtime.model.generations import Phase
from heron_runtime.wire.errors import MalformedMessage
from topology_master.core import events as e
from topology_master.core.state.damage import Unread
from topology_master.core.state.recovery import Recovery

Answers = list[e.Answer]


def answers(effects: list[e.Effect]) -> Answers:
    return [effect for effect in effects if isinstance(effect, e.Answer)]


def damaged(home: Path, checkpoints: int = 3) -> StateNode:
    """A new master, once the last manifest has been cut off; two complete checkpoints are kept."""
    node = begun(home)
    assert [node.checkpoint() for _ in range(checkpoints)] == list(range(1, checkpoints + 1))
    path = sorted((home / "checkpoints" / "manifests").iterdir())[-1]
    path.write_bytes(path.read_bytes()[:-5])
    node.die()
    return StateNode(home, node.played, port=2).register()


def manifests(node: StateNode) -> dict[int, Manifest | None]:
    """As the shell reads them."""
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


def law_nothing_is_decided_by_itself_and_the_damage_is_named() -> None:
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


def law_one_may_go_back_to_an_older_one_if_output_may_come_again() -> None:
    with tempfile.TemporaryDirectory() as name:
        node = damaged(Path(name))
        (refused,) = back(node, 2, repeat=False)
        assert refused.final
        assert "is not whole" in refused.error
        assert "what was written behind checkpoint 2, up to 3, would be written again" in refused.error
        for number, name_of_it in ((1, "checkpoint 1"), (3, "the last checkpoint"), (4, "checkpoint 4")):
            (refused,) = back(node, number)
            assert refused.final
            assert refused.error.startswith(f"{name_of_it} cannot be gone back to")
            assert refused.error.endswith("whole, and kept, are 2"), refused.error
        assert node.generation.number == 1
        (answer,) = back(node, 2)
        assert answer.status is not None
        now = node.generation
        assert (now.number, now.phase, now.restore_from) == (2, Phase.RESTORING, 2)
        assert "somebody has asked for it, and checkpoints behind it are struck off: checkpoint 3: its" in now.cause
        assert (node.record.generation, node.record.begun, node.record.complete) == (2, 3, 2)
        assert node.core.status().tasks_state.storage_fault == ""


def law_a_new_history_begins_there() -> None:
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


def law_it_is_not_decided_for_one_who_does_not_wait_any_more() -> None:
    with tempfile.TemporaryDirectory() as name:
        node = damaged(Path(name))
        node.hold = (e.StorePlan,)
        assert back(node, 2) == []
        node.hold = ()
        node.lose_store()
        node.tick(10_000)
        assert (node.generation.number, node.record.complete) == (1, 3)


def an_older_one_is_taken_in_silence(patch: pytest.MonkeyPatch) -> None:
    read = Recovery.read

    def fall_back(self: Recovery, stored: e.Stored, now_ms: int) -> None:
        read(self, stored, now_ms)
        self.fault = ""

    patch.setattr(Recovery, "read", fall_back)


def output_is_repeated_unasked(patch: pytest.MonkeyPatch) -> None:
    past = Unread.past

    def any_way(self: Unread, asked: e.RestoreRequested, keep: int) -> Manifest | str:
        return past(
            self, e.RestoreRequested(9, 0, asked.checkpoint, repeat_output=True, manifests=asked.manifests), keep
        )

    patch.setattr(Unread, "past", any_way)


def the_record_stays(patch: pytest.MonkeyPatch) -> None:
    """The plan goes back, and the last complete checkpoint is still the damaged one."""
    record_of = Recovery.record_of

    def as_it_was(self: Recovery, generation: object) -> object:
        found = record_of(self, generation)  # type: ignore[arg-type]
        return found if found is None or self._unread is None else self._unread.record

    patch.setattr(Recovery, "record_of", as_it_was)


def who_has_gone_is_still_served(patch: pytest.MonkeyPatch) -> None:
    wanted = Recovery.wanted
    patch.setattr(Recovery, "wanted", lambda self, now_ms, asked="": wanted(self, now_ms, asked=asked or "once asked"))
    patch.setattr("topology_master.core.requests.Requests.of_state", True)


test_law = each_law(globals())
test_mutation = each_mutation(
    [
        (an_older_one_is_taken_in_silence, law_nothing_is_decided_by_itself_and_the_damage_is_named),
        (output_is_repeated_unasked, law_one_may_go_back_to_an_older_one_if_output_may_come_again),
        (the_record_stays, law_one_may_go_back_to_an_older_one_if_output_may_come_again),
        (who_has_gone_is_still_served, law_it_is_not_decided_for_one_who_does_not_wait_any_more),
    ]
)
