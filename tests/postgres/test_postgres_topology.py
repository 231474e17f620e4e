"""A topology writes to a real table while its sink tasks and the server are killed: each line is there once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.heron_command import HeronCommand, unique
from tests.support.servers.postgres import PostgresServer
from tests.support.waiting import wait_until, wait_until_equal

TOPOLOGY = Path(__file__).with_name("connected_topology.py")
LINES = 3000


def write_lines(folder: Path, name: str, first: int) -> list[str]:
    lines = [f"{name} {n}" for n in range(first, first + LINES)]
    with (folder / name).open("a") as file:
        file.writelines(line + "\n" for line in lines)
    return lines


def test_each_line_is_in_the_table_once_after_kills(
    server: PostgresServer, heron: HeronCommand, tmp_path: Path
) -> None:
    folder, name = tmp_path / "lines", unique("Connected")
    folder.mkdir()
    server.ask("CREATE TABLE lines (line text)")
    written = write_lines(folder, "a", 0) + write_lines(folder, "b", 0)
    arguments = (str(folder), server.dsn, str(server.password_file), "lines")
    heron.submit(name, TOPOLOGY, "Connected", "--", *arguments)

    def found() -> list[str]:
        return sorted(line for (line,) in server.ask("SELECT line FROM lines"))

    wait_until(lambda: len(found()) > 0, "a checkpoint is committed")

    def sinks() -> set[int]:
        return {p["pid"] for p in heron.status(name)["processes"] if p.get("component") == "table"}

    killed = sinks()
    assert len(killed) == 2
    for number, pid in enumerate(killed):
        written += write_lines(folder, "ab"[number], LINES * (number + 1))
        os.kill(pid, signal.SIGKILL)
        wait_until_equal(lambda: len(found()), len(written), "lines in the table")
        assert found() == sorted(written)
    assert sinks().isdisjoint(killed)
    written += write_lines(folder, "c", 0)
    server.kill()
    server.start()
    wait_until_equal(lambda: len(found()), len(written), "lines in the table after the server's death")
    assert found() == sorted(written)
    heron.kill(name)
    assert server.ask("SELECT count(*) FROM heronry_staged") == [(0,)]
