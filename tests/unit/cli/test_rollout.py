"""Changes made by a replacement, and the submission that rolls it back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from heron_control.packing import pack
from heron_control.submission.previous_version import describe_changes, with_upgrade_checkpoint
from heron_control.submission.submission import StartFrom, Submission
from heron_runtime.model.topology import ComponentKind, ComponentSpec, TopologyDefinition

PLACE = "local/me/default"
STATE = {"topology.reliability.mode": "EFFECTIVELY_ONCE"}


def version(tasks: int, config: dict[str, Any], **own: Any) -> TopologyDefinition:
    spout = ComponentSpec("words", ComponentKind.SPOUT, "m:Words", 1)
    bolt = ComponentSpec("count", ComponentKind.BOLT, "m:Count", tasks, config=own)
    return TopologyDefinition("T", f"T-{tasks}", (spout, bolt), config)


def submission(definition: TopologyDefinition) -> Submission:
    return Submission(definition, pack(definition), Path("/nowhere"), "me", "default", "me")


def test_changes_include_those_that_an_update_made() -> None:
    before = version(4, {"user.limit": 7, "user.gone": 1}, **{"topology.debug": True})
    assert describe_changes(before, version(2, {"user.limit": 5}, **{"topology.debug": False})) == [
        "count: 4 tasks before, 2 now",
        "user.limit: 7 before, 5 now",
        "count: topology.debug: True before, False now",
        "user.gone: 1 before, not set now",
    ]
    assert describe_changes(before, before) == []


def test_a_removed_component_is_not_a_change() -> None:
    before = version(4, {})
    assert describe_changes(before, replace(before, components=before.components[:1])) == []


def test_a_rollback_without_state_starts_the_same_version() -> None:
    before = submission(version(1, {}))
    assert with_upgrade_checkpoint(before, PLACE, []) is before


def test_a_rollback_with_state_starts_from_the_newest_upgrade_checkpoint() -> None:
    before = submission(version(1, STATE))
    rows = [{"name": "upgrade-9"}, {"name": "upgrade-12"}, {"name": "mine"}, {"name": None}, {"name": "upgrade-x"}]
    again = with_upgrade_checkpoint(before, PLACE, rows)
    assert again is not None
    assert again.start == StartFrom("local/me/default/T@upgrade-12")


def test_a_rollback_without_an_upgrade_checkpoint_is_not_possible() -> None:
    assert with_upgrade_checkpoint(submission(version(1, STATE)), PLACE, [{"name": "mine"}]) is None
