"""Commands on a home whose state store does not exist."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from heron_cli.application import make_app
from heron_control.schedulers.topology_folder import LAUNCH_FILE, place_of
from heron_runtime.launch import Launch


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "home"
    monkeypatch.setenv("HERONRY_HOME", str(made))
    return made


def heron(*arguments: str) -> Result:
    return CliRunner().invoke(make_app(), list(arguments))


def test_before_the_first_submit_there_are_no_topologies(home: Path) -> None:
    listed = heron("list", "local", "-o", "json")
    assert json.loads(listed.output) == []
    assert heron("kill", "local", "words").exit_code == 3
    assert not (home / "state").exists()


def test_a_removed_store_is_reported_and_not_recreated(home: Path) -> None:
    place = place_of(home, "local", "me", "default", "words")
    place.mkdir(parents=True)
    launch = Launch(
        "local", "me", "default", "words", "words-1", f"files://{home}/state", str(place), str(home / "run")
    )
    launch.save(place / LAUNCH_FILE)
    listed = heron("list", "local/me", "-o", "json")
    assert listed.exit_code == 6
    assert heron("status", "local/me", "words").exit_code == 6
    assert heron("kill", "local/me", "words").exit_code == 0, "its processes can be ended"
    assert not place.exists()
    assert json.loads(heron("list", "local/me", "-o", "json").output) == []
    assert not (home / "state").exists()
