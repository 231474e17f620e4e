"""Updates of a definition and packing plan, and rejected requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_control.packing import PackingError, pack
from heron_control.packing.update import UpdateRequest, plan_update, read_parallelism
from heron_runtime.failures import InvalidTopology, UsageError
from heron_runtime.model.topology import GroupingKind, GroupingSpec, InputSpec, StreamSchema, TopologyDefinition
from tests.unit.packing.test_packing import topology as plain


def topology(sizes: dict[str, int], **config: Any) -> TopologyDefinition:
    """Return a topology of a spout, and bolts that read it by key."""
    made = plain(sizes, **config)
    spout, *bolts = made.components
    spout = replace(spout, outputs=(StreamSchema(fields=("k",)),))
    by_key = InputSpec(spout.name, "default", GroupingSpec(GroupingKind.FIELDS, ("k",)))
    return replace(made, components=(spout, *(replace(bolt, inputs=(by_key,)) for bolt in bolts)))


steps = st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(1, 5), min_size=1), min_size=1, max_size=6)


@given(steps, st.data())
def test_task_id_is_never_reused(steps: list[dict[str, int]], data: st.DataObject) -> None:
    definition = topology({"a": 2, "b": 1, "c": 3})
    packing = pack(definition)
    owner = {task.task: (task.component, task.component_index) for task in packing.instances()}
    for parallelism in steps:
        containers = data.draw(st.one_of(st.none(), st.integers(1, 3)))
        try:
            planned = plan_update(definition, packing, UpdateRequest(parallelism, containers))
        except (UsageError, PackingError):
            continue
        definition, packing = planned.after
        for task in packing.instances():
            assert owner.setdefault(task.task, (task.component, task.component_index))[0] == task.component
        assert {task.task for task in packing.instances()} & set(planned.changes.go) == set()
        assert all(task not in owner or owner[task] for task in planned.changes.come)
        assert max(owner) < packing.next_task
        there = {c.name: c.parallelism for c in definition.components}
        assert there == {c: sum(t.component == c for t in packing.instances()) for c in there}


def test_ids_of_removed_tasks_are_not_reused() -> None:
    definition = topology({"a": 1, "b": 3})
    packing = pack(definition)
    for parallelism in (1, 3):
        definition, packing = plan_update(definition, packing, UpdateRequest({"b": parallelism})).after
    assert [task.task for task in packing.instances()] == [1, 2, 5, 6]


def test_update_document_lists_changes_and_notes() -> None:
    definition = topology({"a": 1, "b": 4}, stmgrs=2)
    planned = plan_update(definition, pack(definition), UpdateRequest({"b": 2}, 1)).document()
    assert planned["parallelism"] == {"b": [4, 2]}
    assert planned["containers"] == [2, 1]
    assert [task["component"] for task in planned["removed_tasks"]] == ["b", "b"]
    assert planned["moved_tasks"]
    assert planned["removed_containers"] == [2]
    assert "lost" in planned["notes"][0]
    exact = replace(definition, config={**definition.config, "topology.reliability.mode": "EFFECTIVELY_ONCE"})
    (note,) = plan_update(exact, pack(exact), UpdateRequest({"b": 2}, 1)).notes
    assert "checkpoint" in note
    acked = replace(definition, config={**definition.config, "topology.reliability.mode": "ATLEAST_ONCE"})
    assert "its spout emits it again" in plan_update(acked, pack(acked), UpdateRequest({"b": 2}, 1)).notes[0]
    assert plan_update(acked, pack(acked), UpdateRequest({"b": 5})).notes == ()


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        (UpdateRequest(), UsageError, "nothing to update"),
        (UpdateRequest({"bb": 1}), UsageError, "no component 'bb'"),
        (UpdateRequest({"b": 0}), UsageError, "at least one task"),
        (UpdateRequest({"b": 2}), UsageError, "the update changes nothing"),
        (UpdateRequest({}, 99), PackingError, "99 containers for 3 tasks"),
        (UpdateRequest(move=7), UsageError, "has no container 7 with tasks"),
        (UpdateRequest({"b": 5000}), InvalidTopology, "cannot be updated"),
    ],
)
def test_invalid_update_is_rejected(asked: UpdateRequest, error: type[Exception], said: str) -> None:
    definition = topology({"a": 1, "b": 2})
    with pytest.raises(error, match=said):
        plan_update(definition, pack(definition), asked)


def test_parallelism_option_is_parsed() -> None:
    assert read_parallelism(["a:1", "b:c:2"]) == {"a": 1, "b:c": 2}
    for text in ("a", "a:", ":1", "a:-1", "a:1.0", "a:²", "a:12345678901"):
        with pytest.raises(UsageError, match="is not COMPONENT:TASKS"):
            read_parallelism([text])
    with pytest.raises(UsageError, match="twice"):
        read_parallelism(["a:1", "a:2"])
