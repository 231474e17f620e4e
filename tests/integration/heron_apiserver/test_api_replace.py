"""State that survives ``--replace`` and ``--from-checkpoint`` through an API server.

The containers are processes of this machine. ``tests/docker`` tests the same with volumes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.front_door import update_topology as user
from tests.integration.front_door.kept_counts import KeptCounts
from tests.support.api_server_process import ApiProcess, Heron, api_server
from tests.support.waiting import wait_until

WHERE = "box/ads/prod"


@dataclass
class Served(KeptCounts):
    """Counting topology behind an API server."""

    heron: Heron
    folder: Path

    def submit(self, topology: str, *options: str, code: int = 0) -> str:
        command = ("submit", WHERE, user.__file__, topology, "--name", "Kept", *options, "--", str(self.folder))
        return self.heron.run(*command, code=code).stderr

    def goes_on(self) -> None:
        before = self.every_count_is_there_once()
        wait_until(lambda: self.every_count_is_there_once() > before + 50)


@pytest.fixture
def api() -> Iterator[ApiProcess]:
    with tempfile.TemporaryDirectory(prefix="heronry-api-") as folder:  # a short path, for its sockets
        home = Path(folder, "api")
        with api_server(home, "--cluster", "box", "--scheduler", "local") as server:
            yield server


def test_new_version_and_other_topology_continue_from_the_state(api: ApiProcess, tmp_path: Path) -> None:
    heron = Heron(tmp_path / "home")
    heron.run("login", "box", "--api", api.url, "--token-file", str(api.home / "admin-token"))
    served = Served(heron, tmp_path)
    served.submit("Kept")
    try:
        wait_until(lambda: (tmp_path / "out").exists() and served.every_count_is_there_once() > 100)
        said = served.submit("OtherKeys", "--replace", code=7)
        assert "nothing was changed, Kept continues" in said
        served.goes_on()

        said = served.submit("Later", "--replace", "--allow-dropped-state")
        assert "continues from its checkpoint upgrade-NUMBER" in said
        served.goes_on()
        (label,) = [row["name"] for row in heron.data("checkpoint", "list", WHERE, "Kept") if row["name"]]
        assert label.startswith("upgrade-")
        assert "is drained; if this command is killed now" in api.log.read_text()

        heron.run("deactivate", WHERE, "Kept")
        heron.run("checkpoint", "create", WHERE, "Kept", "--name", "here")
        heron.run("kill", WHERE, "Kept")
        served.submit("Later", "--from-checkpoint", f"{WHERE}/Kept@here")
        served.goes_on()
    finally:
        heron.run("kill", WHERE, "Kept", code=None)
