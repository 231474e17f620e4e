"""What a replacement changes, and how the version before goes on where the new one is bad."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from heron_cli.clusters import ClusterAddress
from heron_cli.rollout import describe_changes, with_upgrade_checkpoint
from heron_control.packing import pack
from heron_control.submission.submission import StartFrom, Submission
from heron_runtime.model.topology import ComponentKind, ComponentSpec, TopologyDefinition

ADDRESS = ClusterAddress("local", "me", "default")
STATE = {"topology.reliability.mode": "EFFECTIVELY_ONCE"}


def version(tasks: int, config: dict[str, Any], **own: Any) -> TopologyDefinition:
    spout = ComponentSpec("words", ComponentKind.SPOUT, "m:Words", 1)
    bolt = ComponentSpec("count", ComponentKind.BOLT, "m:Count", tasks, config=own)
    return TopologyDefinition("T", f"T-{tasks}", (spout, bolt), config)


def submission(definition: TopologyDefinition) -> Submission:
    return Submission(definition, pack(definition), Path("/nowhere"), "me", "default", "me")


def test_what_an_update_had_changed_is_named() -> None:
    before = version(4, {"user.limit": 7, "user.gone": 1}, **{"topology.debug": True})
    assert describe_changes(before, version(2, {"user.limit": 5}, **{"topology.debug": False})) == [
        "count: 4 tasks before, 2 now",
        "user.limit: 7 before, 5 now",
        "count: topology.debug: True before, False now",
        "user.gone: 1 before, not set now",
    ]
    assert describe_changes(before, before) == []


def test_a_component_that_goes_is_no_difference() -> None:
    before = version(4, {})
    assert describe_changes(before, replace(before, components=before.components[:1])) == []


def test_a_version_without_state_begins_again() -> None:
    before = submission(version(1, {}))
    assert with_upgrade_checkpoint(before, ADDRESS, []) is before


def test_a_version_with_state_goes_on_from_where_it_was_drained() -> None:
    before = submission(version(1, STATE))
    rows = [{"name": "upgrade-9"}, {"name": "upgrade-12"}, {"name": "mine"}, {"name": None}, {"name": "upgrade-x"}]
    again = with_upgrade_checkpoint(before, ADDRESS, rows)
    assert again is not None
    assert again.start == StartFrom("local/me/default/T@upgrade-12")


def test_a_version_whose_state_was_given_up_does_not_begin_without_it() -> None:
    assert with_upgrade_checkpoint(submission(version(1, STATE)), ADDRESS, [{"name": "mine"}]) is None
