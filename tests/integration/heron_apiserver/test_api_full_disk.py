"""A disk that fills up during an upload: the answer is 507, no files are left, and a smaller upload is accepted."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.api_server_process import TOPOLOGIES, api_server
from tests.support.waiting import wait_until

FIELDS = {"name": "words", "cluster": "box", "role": "ads", "environment": "prod"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a disk of 8 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount")
    yield folder
    wait_until(lambda: subprocess.run(["umount", str(folder)], capture_output=True, check=False).returncode == 0)


def test_upload_to_a_full_disk_is_507_and_leaves_no_files(small_disk: Path) -> None:
    with api_server(small_disk / "api", "--cluster", "box") as server:

        def submit(size: int) -> int:
            files = {"definition": ("d", b"\xff"), "topology": ("t", os.urandom(size))}
            return server.request("POST", TOPOLOGIES, data=FIELDS, files=files).status_code

        assert submit(16 << 20) == 507
        wait_until(lambda: server.files() == set())
        assert submit(1 << 20) == 422  # the upload fits; its content is invalid
        assert server.files() == set()
        assert any(line["result"] == 507 for line in server.audit())
