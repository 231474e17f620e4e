"""``heron submit spark`` before Spark starts: instants, options of other clusters, and the missing extra."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
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
from heron_cli.options import parse_instant
from heron_runtime.failures import NotFound, Unavailable, UsageError


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
