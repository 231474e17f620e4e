"""Configuration of a program after ``--config-property`` and ``config.yaml``."""

from __future__ import annotations

from typing import Any

import pytest

from heron_cli.options import reject_idle_keys
from heron_cli.program import apply_settings, check_input, check_traits, parse_properties
from heron_control.packaging.definer import TopologyTraits
from heron_runtime.failures import InvalidTopology, UsageError
from heron_runtime.model.topology import ComponentKind, ComponentSpec, StreamSchema, TopologyDefinition

STATE = {"topology.reliability.mode": "EFFECTIVELY_ONCE"}


def program(**config: Any) -> TopologyDefinition:
    spout = ComponentSpec("s", ComponentKind.SPOUT, "m:S", 1, outputs=(StreamSchema("default", ("x",)),))
    return TopologyDefinition("T", "T-1", (spout,), {"topology.name": "T", **config})


def configured(definition: TopologyDefinition, *properties: str, below: dict[str, Any] | None = None) -> dict[str, Any]:
    return apply_settings(definition, below or {}, parse_properties(properties, "local")).config


@pytest.mark.parametrize(
    ("before", "written", "after"),
    [(True, "false", False), (3, "7", 7), (1.5, "2", 2.0), ("3", "7", "7"), ([1], "[2]", [2]), (None, "false", False)],
)
def test_property_has_the_type_of_the_programs_value(before: Any, written: str, after: Any) -> None:
    own = {} if before is None else {"user.b": before}
    value = configured(program(**own), f"user.b={written}")["user.b"]
    assert (value, type(value)) == (after, type(after))


def test_property_has_the_type_of_the_value_in_config_yaml() -> None:
    assert configured(program(), "user.b=5", below={"user.b": "x"})["user.b"] == "5"


def test_property_of_another_type_is_rejected() -> None:
    with pytest.raises(UsageError, match=r"user\.b: 'maybe' is neither true nor false"):
        configured(program(**{"user.b": True}), "user.b=maybe")


@pytest.mark.parametrize(
    "text", ["topology.component.parallelism=4", "heron.slurm.nodes=2", "topology.stateful.checkpoint.keep=5"]
)
def test_property_without_effect_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="no effect"):
        configured(program(), text)


def test_keys_with_an_effect_are_accepted() -> None:
    assert configured(program(**STATE), "topology.stateful.checkpoint.keep=5")["topology.stateful.checkpoint.keep"] == 5
    reject_idle_keys({"heron.slurm.nodes": 2}, "slurm")


def test_each_step_that_drops_late_records_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    check_traits(program(), TopologyTraits(drops_late=["counts", "sums"]), strict=True)
    assert capsys.readouterr().err.splitlines() == [
        "note: step 'counts': late records are dropped and counted; read them with .late()",
        "note: step 'sums': late records are dropped and counted; read them with .late()",
    ]


def test_missing_input_is_rejected_where_tasks_run_locally(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidTopology, match="nothing to read"):
        check_input(["step 'lines': there is nothing to read at /none"], local=True)
    check_input(["step 'lines': there is nothing to read at /none"], local=False)
    assert "note: step 'lines'" in capsys.readouterr().err
