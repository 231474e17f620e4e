"""``heron doctor``: checks by name, and bounded waiting."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from heron_cli.diagnosis import checks
from heron_cli.diagnosis.checks import examine
from heron_cli.diagnosis.findings import CheckStatus, Finding, bad, good, shorten, version_numbers
from heron_cli.diagnosis.probe import run_check, run_command
from heron_cli.home import Home, SavedLogin, write_credentials
from heron_runtime.failures import NotFound


def test_version_numbers_and_lists_are_formatted() -> None:
    assert version_numbers("v1.20.2") == (1, 20, 2)
    assert version_numbers("20.10.24+dfsg1") == (20, 10, 24)
    assert version_numbers("unknown") == ()
    assert shorten(["a", "b", "c"], 2) == "a, b and 1 more"


def test_hanging_check_is_named_and_abandoned() -> None:
    release = threading.Event()

    def hang() -> list[Finding]:
        release.wait()
        return []

    try:
        (finding,) = run_check("Docker", hang, 0.05)
        assert (finding.check, finding.verdict) == ("Docker", CheckStatus.BAD)
        assert "no answer within 0.05 s" in finding.found
    finally:
        release.set()
    assert run_command(["sleep", "60"], 0.05).trouble == "`sleep 60` does not answer within 0.05 s"
    assert run_command(["no-such-command"]).trouble == "command not found: no-such-command"
    assert run_command(["ls", "/no/such/file"]).trouble.endswith("No such file or directory")


def test_failing_check_is_a_finding() -> None:
    def fall() -> list[Finding]:
        raise PermissionError(13, "Permission denied", "/srv")

    assert run_check("home", fall)[0].found == "/srv: Permission denied"
    assert run_check("home", lambda: [bad("x", "y", "z")]) == [bad("x", "y", "z")]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Return a home whose engines are not contacted."""
    judged = {name: ((name, lambda _, name=name: [good(f"engine {name}", "")]),) for name in checks.ENGINES}
    monkeypatch.setattr(checks, "ENGINES", judged)
    monkeypatch.setattr(checks.machine, "check_cluster", lambda name, login: good(f"cluster {name}", login.api))
    return Home(tmp_path / "home")


def names_of_checks(home: Home, name: str) -> list[str]:
    return [finding.check for finding in examine(home, name)][4:]  # after Python, packages, home and disk


def test_engine_is_checked_at_its_cluster(home: Home) -> None:
    assert names_of_checks(home, "slurm") == ["engine slurm"]
    here, there = "http://127.0.0.1:9000", "https://heron.example.org"
    targets = {"docker": (here, "docker"), "k8s": (there, "k8s"), "prod": (here, "swarm")}
    logins = {name: SavedLogin(api, engine, "t") for name, (api, engine) in targets.items()}
    write_credentials(home, {**logins, "own": SavedLogin(here, "plugged-in", "t")})
    assert names_of_checks(home, "docker") == ["cluster docker", "engine docker"]
    assert names_of_checks(home, "prod") == ["cluster prod", "engine swarm"]
    assert names_of_checks(home, "own") == ["cluster own"]
    assert names_of_checks(home, "k8s") == ["cluster k8s", "k8s"]
    (elsewhere,) = [finding for finding in examine(home, "k8s") if finding.check == "k8s"]
    assert elsewhere.verdict is CheckStatus.NOTE
    assert "heron.example.org" in elsewhere.found
    with pytest.raises(NotFound, match=r"unknown engine or cluster 'swrm'; did you mean 'swarm'"):
        examine(home, "swrm")
