"""Whom ``heron doctor`` asks for which name, and that it never waits for ever."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from heron_cli.credentials import Login, write_credentials
from heron_cli.diagnosis import engines
from heron_cli.diagnosis.asking import ask, within
from heron_cli.diagnosis.engines import examine
from heron_cli.diagnosis.findings import Finding, Health, bad, good, numbers, some
from heron_cli.home import Home
from heron_runtime.failures import NotFound


def test_versions_and_lists() -> None:
    assert numbers("v1.20.2") == (1, 20, 2)
    assert numbers("20.10.24+dfsg1") == (20, 10, 24)
    assert numbers("unknown") == ()
    assert some(["a", "b", "c"], 2) == "a, b and 1 more"


def test_what_hangs_is_named_and_left_behind() -> None:
    release = threading.Event()

    def hang() -> list[Finding]:
        release.wait()
        return []

    try:
        (finding,) = within("Docker", hang, 0.05)
        assert (finding.check, finding.verdict) == ("Docker", Health.BAD)
        assert "no answer within 0.05 s" in finding.found
    finally:
        release.set()
    assert ask(["sleep", "60"], 0.05).trouble == "`sleep 60` does not answer within 0.05 s"
    assert ask(["no-such-command"]).trouble == "there is no command no-such-command"
    assert ask(["ls", "/no/such/file"]).trouble.endswith("No such file or directory")


def test_what_breaks_is_a_finding() -> None:
    def fall() -> list[Finding]:
        raise PermissionError(13, "Permission denied", "/srv")

    assert within("home", fall)[0].found == "/srv: Permission denied"
    assert within("home", lambda: [bad("x", "y", "z")]) == [bad("x", "y", "z")]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """One whose engines are not asked."""
    judged = {name: ((name, lambda _, name=name: [good(f"engine {name}", "")]),) for name in engines.ENGINES}
    monkeypatch.setattr(engines, "ENGINES", judged)
    monkeypatch.setattr(engines.machine, "cluster", lambda name, login: good(f"cluster {name}", login.api))
    return Home(tmp_path / "home")


def checks(home: Home, name: str) -> list[str]:
    return [finding.check for finding in examine(home, name)][4:]  # without Python, packages, home and disk


def test_an_engine_is_asked_where_it_is(home: Home) -> None:
    assert checks(home, "slurm") == ["engine slurm"]
    here, there = "http://127.0.0.1:9000", "https://heron.example.org"
    logins = {"docker": Login(here, "docker", "t"), "k8s": Login(there, "k8s", "t"), "prod": Login(here, "swarm", "t")}
    write_credentials(home, {**logins, "own": Login(here, "plugged-in", "t")})
    assert checks(home, "docker") == ["cluster docker", "engine docker"]
    assert checks(home, "prod") == ["cluster prod", "engine swarm"]
    assert checks(home, "own") == ["cluster own"]
    assert checks(home, "k8s") == ["cluster k8s", "k8s"]
    (elsewhere,) = [finding for finding in examine(home, "k8s") if finding.check == "k8s"]
    assert elsewhere.verdict is Health.NOTE
    assert "heron.example.org" in elsewhere.found
    with pytest.raises(NotFound, match=r"no engine or cluster 'swrm'; did you mean 'swarm'"):
        examine(home, "swrm")
