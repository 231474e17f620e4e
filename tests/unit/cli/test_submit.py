"""Submissions before they start: settings of a program, options of Spark jobs, and changes by a replacement."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from heron_cli.application import make_app
from heron_cli.commands import spark_job
from heron_cli.commands.spark_job import (
    ONLY_SPARK,
    SHARED,
    SparkSubmitOptions,
    streaming_flags,
    submit_spark_job,
)
from heron_cli.options import parse_instant, reject_idle_keys
from heron_cli.program import apply_settings, check_input, check_traits, parse_properties
from heron_control.packaging.definer import TopologyTraits
from heron_control.packing import pack
from heron_control.submission.previous_version import describe_changes, with_upgrade_checkpoint
from heron_control.submission.submission import StartFrom, Submission
from heron_runtime.failures import InvalidTopology, NotFound, Unavailable, UsageError
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


@pytest.mark.parametrize(
    ("config", "traits", "said"),
    [
        ({}, TopologyTraits(hearing={"s": ["fail"]}), "spout 's' defines fail"),
        (STATE, TopologyTraits(ends={"sink": ""}), "bolt 'sink': it has no readers and is not a TwoPhaseSink"),
    ],
)
def test_class_that_the_configuration_contradicts_warns_and_fails_if_strict(
    config: dict[str, Any], traits: TopologyTraits, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidTopology, match=said) as caught:
        check_traits(program(**config), traits, strict=True)
    check_traits(program(**config), traits, strict=False)
    assert capsys.readouterr().err == f"warning: {caught.value.message}\n{caught.value.cure}\n"


@pytest.mark.parametrize(
    ("config", "traits", "said"),
    [
        ({"topology.reliability.mode": "ATMOST_ONCE"}, TopologyTraits(hearing={"s": ["fail"]}), ""),
        ({"topology.reliability.mode": "ATLEAST_ONCE"}, TopologyTraits(hearing={"s": ["fail"]}), ""),
        ({}, TopologyTraits(ends={"sink": ""}), ""),
        (STATE, TopologyTraits(ends={"sink": "idempotent"}), ""),
        (STATE, TopologyTraits(ends={"sink": "at_least_once"}), "note: sink: output may be repeated after a fault"),
    ],
)
def test_class_that_fits_the_configuration_is_accepted(
    config: dict[str, Any], traits: TopologyTraits, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_traits(program(**config), traits, strict=True)
    assert capsys.readouterr().err.partition(",")[0].strip() == said


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None), ("0", 0), ("1.5", 1500), ("-2", -2000), ("1970-01-01", 0), ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T01:00:00+01:00", 0), ("1969-12-31T23:59:59.999", -1), ("2026-11-21 07:00", 1795244400000),
    ],
)  # fmt: skip
def test_instant_is_iso_8601_or_seconds(text: str, expected: int | None) -> None:
    assert parse_instant("--to", text) == expected


@pytest.mark.parametrize("text", ["tomorrow", "nan", "inf", "2026-13-01"])
def test_invalid_instant_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="--to"):
        parse_instant("--to", text)


OPTIONS = {
    parameter.name: parameter
    for parameter in get_command(make_app("submit")).commands["submit"].params
    if parameter.param_type_name == "option" and parameter.name != "help"
}
VALUES = {"dry_run_format": "raw", "wait_timeout": "1"}


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_every_option_is_used_by_spark_or_rejected(name: str, tmp_path: Path) -> None:
    """An option that a Spark job does not read is rejected, including options added later."""
    flag = max(OPTIONS[name].opts, key=len)
    value = [] if OPTIONS[name].is_flag else [VALUES.get(name, "x")]
    result = CliRunner().invoke(make_app("submit"), ["submit", "spark", str(tmp_path / "none.py"), flag, *value])
    if name in ONLY_SPARK | SHARED:
        assert f"{flag} is not for" not in result.stderr
    else:
        assert result.exit_code == UsageError.exit_code
        assert f"{flag} is not for `heron submit spark`" in result.stderr


@pytest.mark.parametrize("name", sorted(ONLY_SPARK))
def test_spark_options_are_rejected_elsewhere(name: str, tmp_path: Path) -> None:
    flag = max(OPTIONS[name].opts, key=len)
    result = CliRunner().invoke(make_app("submit"), ["submit", "local", str(tmp_path / "none.py"), flag, "x"])
    assert result.exit_code == UsageError.exit_code
    assert f"{flag} is for `heron submit spark`, not for local" in result.stderr


def test_spark_jobs_have_no_roles() -> None:
    for command in ("kill", "submit", "status"):
        result = CliRunner().invoke(make_app(command), [command, "spark/ads", "words"])
        assert result.exit_code == UsageError.exit_code
        assert "neither roles nor environments" in result.stderr


def submit(file: Path, **options: Any) -> None:
    given = SparkSubmitOptions(**{"output_path": "/out", **options})
    submit_spark_job(file, None, (), given, dry_run=False, replace=False)


def test_invalid_command_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_job, "_run", lambda command: pytest.fail(f"started {command}"))
    file = tmp_path / "p.py"
    with pytest.raises(NotFound):
        submit(file)
    file.touch()
    for options in (
        {"output_path": ""}, {"input_format": "xml"}, {"conf": ["memory=1g"]}, {"from_": "5", "to": "5"},
    ):  # fmt: skip
        with pytest.raises(UsageError):
            submit(file, **options)


def test_missing_extra_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "p.py"
    file.touch()
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else found(name))
    with pytest.raises(Unavailable) as caught:
        submit(file)
    assert caught.value.exit_code == 6
    assert "pip install 'heronry[spark]'" in caught.value.cure


def test_the_command_line_does_not_import_pyspark() -> None:
    program = "import sys, heron_cli.application; heron_cli.application.make_app()"
    code = f"{program}; sys.exit('pyspark' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        ({}, []),
        ({"mode": "batch"}, []),
        ({"mode": "streaming", "checkpoint": "/c"}, ["--checkpoint", "/c"]),
        ({"mode": "streaming", "checkpoint": "/c", "trigger": "available-now"}, ["--checkpoint", "/c"]),
        (
            {"mode": "streaming", "checkpoint": "/c", "trigger": "processing-time=2.5"},
            ["--checkpoint", "/c", "--every-seconds=2.5"],
        ),
    ],
)
def test_streaming_options_become_flags(given: dict[str, str], flags: list[str]) -> None:
    assert streaming_flags(SparkSubmitOptions(**given)) == flags


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"mode": "stream"}, "unknown --mode 'stream'"),
        ({"checkpoint": "/c"}, "--checkpoint is for --mode streaming"),
        ({"mode": "batch", "trigger": "available-now"}, "--trigger is for"),
        ({"mode": "streaming"}, "--checkpoint is missing"),
        ({"mode": "streaming", "checkpoint": "/c", "trigger": "soon"}, "unknown --trigger 'soon'"),
        ({"mode": "streaming", "checkpoint": "/c", "trigger": "available-now=1"}, "unknown --trigger"),
        ({"mode": "streaming", "checkpoint": "/c", "trigger": "processing-time"}, "invalid seconds"),
        ({"mode": "streaming", "checkpoint": "/c", "trigger": "processing-time=0"}, "invalid seconds"),
        ({"mode": "streaming", "checkpoint": "/c", "trigger": "real-time"}, "does not support file sources"),
    ],
)
def test_invalid_streaming_options_are_rejected(given: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        streaming_flags(SparkSubmitOptions(**given))


PLACE = "local/me/default"


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
