"""Exactly-once output of file and HTTP sinks while their tasks are killed."""

from __future__ import annotations

import csv
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.heron_command import HeronCommand, unique
from tests.support.servers.idempotent_http import KeepingServer
from tests.support.waiting import wait_until, wait_until_equal

TOPOLOGY = Path(__file__).with_name("sinks_topology.py")
LINES, NUMBERS = 3000, 5000


@pytest.fixture
def server() -> Iterator[KeepingServer]:
    made = KeepingServer()
    thread = threading.Thread(target=made.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def cells(folder: Path) -> list[str]:
    """Return the sorted cells that a reader of the CSV files sees; readers skip hidden files."""
    found = []
    for file in folder.glob("[!.]*.csv"):
        with file.open(newline="") as lines:
            found += [row[0] for row in list(csv.reader(lines))[1:]]
    return sorted(found)


def write_lines(folder: Path, name: str, first: int) -> list[str]:
    lines = [f'{name} "{n}", or so' for n in range(first, first + LINES)]
    with (folder / name).open("a") as file:
        file.writelines(line + "\n" for line in lines)
    return lines


def test_files_and_http_batches_hold_each_line_once_after_kills(
    server: KeepingServer, heron: HeronCommand, tmp_path: Path
) -> None:
    name, folder = unique("Sinks"), tmp_path / "lines"
    folder.mkdir()
    written = write_lines(folder, "a", 0)
    server.planned[:] = [503, 429]
    heron.submit(name, TOPOLOGY, "Sinks", "--", str(tmp_path), server.url, str(NUMBERS))

    def posted() -> list[str]:
        return sorted(record["line"] for batch in list(server.bodies.values()) for record in batch)

    wait_until(lambda: cells(tmp_path / "csv") and posted(), "a checkpoint is committed")
    for number, component in enumerate(("table", "post")):
        (pid, *_) = [p["pid"] for p in heron.status(name)["processes"] if p.get("component") == component]
        written += write_lines(folder, "ab"[number], LINES)
        os.kill(pid, signal.SIGKILL)
        wait_until_equal(lambda: len(cells(tmp_path / "csv")), len(written), "lines in files")
        wait_until_equal(lambda: len(posted()), len(written), "lines posted")
        assert cells(tmp_path / "csv") == posted() == sorted(written)
    assert cells(tmp_path / "numbers") == sorted(map(str, range(NUMBERS)))
    heron.kill(name)
