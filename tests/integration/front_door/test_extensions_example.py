"""``examples/extensions`` as described in its guide: built, installed, and used through the command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.heron_command import ROOT, HeronCommand, heron_command, json_lines, unique
from tests.support.waiting import wait_until, wait_until_equal

EXAMPLE = ROOT / "examples" / "extensions"
LETTERS = EXAMPLE / "letters.py"
FIRST = {"apple": 100, "banana": 100, "fig": 100, "kiwi": 100}
SECOND = {"nut": 100, "orange": 100, "pear": 100, "Zucchini": 100, "42": 100}


def pip(*arguments: object) -> None:
    """Run pip without a network."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the example as a wheel from a copy, since a build writes beside its source."""
    folder = tmp_path_factory.mktemp("wheel")
    source = shutil.copytree(EXAMPLE, folder / "source")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source)
    (found,) = folder.glob("*.whl")
    return found


@contextmanager
def door_with(folder: Path, wheel: Path | None) -> Iterator[HeronCommand]:
    """Yield a command in whose environment the wheel, if any, is installed."""
    with heron_command(folder) as heron:
        if wheel is not None:
            pip("install", "--no-deps", "--no-index", "--target", folder / "site", wheel)
            heron.environment["PYTHONPATH"] = str(folder / "site")
            heron.reads_in_process = False
        yield heron


def tallies(folder: Path) -> list[dict[str, int]]:
    return [json.loads(file.read_text() or "{}") for file in sorted(folder.glob("tally-*.json"))]


def test_installed_extensions_are_available_to_the_command(tmp_path: Path, wheel: Path) -> None:
    name, store = unique("Letters"), unique("ram")
    with door_with(tmp_path, wheel) as heron:
        heron.home.mkdir(mode=0o700)
        (heron.home / "config.yaml").write_text(f"local:\n  heron.state.url: ram://{store}\n")
        try:
            heron.submit(
                name, LETTERS, "Letters", "--", str(tmp_path), heron__metrics__sinks="tmanager,totals,nonsense"
            )
            wait_until_equal(lambda: tallies(tmp_path), [FIRST, SECOND], "words are dealt out by their first letter")
            assert Path("/dev/shm", f"heronry-{os.geteuid()}-{store}", "state.db").exists()
            containers = {p["component"]: p["container"] for p in heron.status(name)["processes"] if p["task"]}
            assert containers == {"words": 1, "tally": 2}, "a container for each component"
            (place,) = (heron.home / "topologies" / "local").glob(f"*/default/{name}")
            totals = place / "metrics" / "totals-1.json"
            wait_until(lambda: totals.exists() and "__emit-count/default" in totals.read_text(), "the sink writes")
            log = (place / "log-files" / "metrics_manager-1.log").read_text()
            assert "unknown metrics sink 'nonsense'" in log
        finally:
            heron.run("kill", "local", name)  # the fixture searches for leftovers in a default store only
            shutil.rmtree(Path("/dev/shm", f"heronry-{os.geteuid()}-{store}"), ignore_errors=True)


def test_requirements_bring_serializer_and_grouping_to_the_instances(tmp_path: Path, wheel: Path) -> None:
    name, package = unique("Letters"), tmp_path / "package"
    package.mkdir()
    (package / "letters.py").write_text(LETTERS.read_text())
    (package / "requirements.txt").write_text(f"{wheel}\n")
    with door_with(tmp_path, None) as heron:
        refused = heron.run("submit", "local", "--name", name, str(package), code=7)
        assert "unknown packing algorithm 'by_component'" in refused.stderr
        assert "must be installed where `heron submit` runs" in " ".join(refused.stderr.split())
        text = LETTERS.read_text().replace('"by_component"', '"round_robin"')
        (package / "letters.py").write_text(text)
        heron.submit(name, package, "Letters", "--", str(tmp_path))
        wait_until_equal(lambda: tallies(tmp_path), [FIRST, SECOND], "words are dealt out by their first letter")
        (place,) = (heron.home / "topologies" / "local").glob(f"*/default/{name}")
        wait_until(lambda: json_lines(place / "metrics" / "metrics-1.jsonl"), "the default sinks write")
        heron.kill(name)


def test_api_server_uses_the_scheduler_extension(tmp_path: Path, wheel: Path) -> None:
    with door_with(tmp_path, wheel) as heron:
        heron.environment["FRUGAL_FREE_MIB"] = str(10**9)
        server = [sys.executable, "-m", "heron_apiserver", "--port", "0", "--cluster", "box"]
        unknown = subprocess.run(
            [*server, "--home", str(tmp_path / "no"), "--scheduler", "frugl"],
            env=heron.environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert unknown.returncode != 0
        assert "unknown scheduler 'frugl'; known: 'docker', 'frugal', " in unknown.stderr
        api = subprocess.Popen(
            [*server, "--home", str(tmp_path / "api"), "--scheduler", "frugal"],
            env=heron.environment, cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert api.stdout is not None
            url = api.stdout.readline().strip()
            token = tmp_path / "api" / "admin-token"
            heron.run("login", "box", "--api", url, "--token-file", str(token))
            refused = heron.run("submit", "box", str(LETTERS), "Letters", "--", str(tmp_path), code=6)
            assert "MiB of memory are free" in refused.stderr
        finally:
            api.terminate()
            api.communicate(timeout=60)
