"""Settings changed at run time, and a container whose tasks move to a new one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_control.packing import pack
from heron_control.packing.runtime_settings import MAY_CHANGE, RuntimeSetting, read_settings
from heron_control.packing.update import UpdateRequest, plan_update
from heron_runtime.failures import InvalidTopology, UsageError
from heron_runtime.model.settings import ALL_SETTINGS
from heron_runtime.model.topology import TopologyDefinition
from tests.unit.packing.test_update import topology

STATE = {"topology.reliability.mode": "EFFECTIVELY_ONCE"}


def made(**own: Any) -> TopologyDefinition:
    """Return a topology of a spout a and bolts b, c, with own settings for b."""
    plain = topology({"a": 1, "b": 2, "c": 1})
    components = tuple(
        replace(spec, config={f"user.{key}": value for key, value in own.items()} if spec.name == "b" else {})
        for spec in plain.components
    )
    return replace(plain, components=components)


def update(definition: TopologyDefinition, *texts: str) -> TopologyDefinition:
    return plan_update(definition, pack(definition), UpdateRequest(settings=read_settings(texts))).after[0]


@given(st.from_regex(r"[a-z][a-z.]{0,8}", fullmatch=True), st.text(max_size=20), st.sampled_from(["", "b", "b.x"]))
def test_setting_round_trips_through_its_text(key: str, value: str, component: str) -> None:
    wanted = RuntimeSetting(f"user.{key}", value, component)
    assert read_settings([str(wanted)]) == (wanted,)


def test_malformed_settings_are_rejected() -> None:
    for text in ("", "topology.debug", "b:topology.debug", ":user.x:1", "b::1"):
        with pytest.raises(UsageError):
            update(made(), text)
    with pytest.raises(UsageError, match="given twice"):
        read_settings(["user.x:1", "user.x:2"])
    assert read_settings(["user.url:http://x:80/"]) == (RuntimeSetting("user.url", "http://x:80/"),)


def test_update_changes_only_the_given_settings_and_moves_no_task() -> None:
    definition = made(limit=1, name="x")
    packing = pack(definition)
    asked = UpdateRequest(settings=read_settings(["b:user.limit:7", "topology.debug:true"]))
    planned = plan_update(definition, packing, asked)
    after, placed = planned.after
    assert after.component("b").config == {"user.limit": 7, "user.name": "x"}
    assert after.config["topology.debug"] is True
    assert placed.containers == packing.containers
    assert planned.document()["settings"] == [
        {"component": None, "key": "topology.debug", "from": None, "to": True},
        {"component": "b", "key": "user.limit", "from": 1, "to": 7},
    ]
    assert planned.restarted == ("a", "b", "c"), "what holds for all concerns all"
    _, _, note = planned.notes
    assert "processes of a, b, c restart" in note
    assert plan_update(definition, packing, UpdateRequest(settings=read_settings(["b:user.limit:7"]))).restarted == (
        "b",
    )
    kept = replace(definition, config={**definition.config, **STATE})
    planned = plan_update(kept, packing, UpdateRequest(settings=read_settings(["b:user.limit:7"])))
    assert (planned.restarted, len(planned.notes)) == ((), 1), "all restore, and begin with their settings there"


@pytest.mark.parametrize(
    ("before", "written", "after"),
    [(1, "7", 7), (1.5, "2", 2.0), (True, "false", False), ("x", "7", "7"), ([1], "[2]", [2]), ({"a": 1}, "{}", {})],
)
def test_user_value_keeps_its_type(before: Any, written: str, after: Any) -> None:
    value = update(made(x=before), f"b:user.x:{written}").component("b").config["user.x"]
    assert (value, type(value)) == (after, type(after))
    if not isinstance(before, str):
        with pytest.raises(UsageError, match="the value before is"):
            update(made(x=before), "b:user.x:null")


@pytest.mark.parametrize("key", sorted(set(ALL_SETTINGS) - MAY_CHANGE))
def test_every_other_key_is_rejected_by_name(key: str) -> None:
    with pytest.raises(UsageError, match=key):
        update(replace(made(), config=STATE), f"{key}:1")


def test_invalid_setting_updates_are_rejected() -> None:
    definition = made()
    for text in ("user.streamlet.steps:x", "topology.stateful.checkpoint.keep:4", "d:user.x:1", "topology.debug:maybe"):
        with pytest.raises(UsageError):
            update(definition, text)
    with pytest.raises(InvalidTopology, match="holds for the whole topology"):
        update(replace(definition, config=STATE), "b:topology.stateful.checkpoint.keep:4")
    with pytest.raises(UsageError, match="the update changes nothing"):
        update(made(x=1), "b:user.x:1")


@given(st.integers(1, 4), st.lists(st.integers(0, 3), min_size=1, max_size=5))
def test_moved_container_takes_exactly_its_tasks(containers: int, moves: list[int]) -> None:
    definition = topology({"a": 2, "b": 3, "c": 1}, stmgrs=containers)
    packing = pack(definition)
    for which in moves:
        held = {plan.container: [task.task for task in plan.instances] for plan in packing.containers}
        number = sorted(held)[which % len(held)]
        planned = plan_update(definition, packing, UpdateRequest(move=number))
        packing = planned.after[1]
        new = max(held) + 1
        now = {plan.container: [task.task for task in plan.instances] for plan in packing.containers}
        assert now == {**{n: tasks for n, tasks in held.items() if n != number}, new: held[number]}
        assert (planned.changes.new_containers, planned.changes.old_containers) == ((new,), (number,))
        assert not planned.changes.come + planned.changes.go
