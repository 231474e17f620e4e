"""A topology follows real tables while its tasks and the server are killed: its output gives the same table."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from heronry.connect.pgoutput import lsn_of
from tests.support.heron_command import HeronCommand, unique
from tests.support.servers.postgres import PostgresServer
from tests.support.waiting import wait_until, wait_until_equal

TOPOLOGY = Path(__file__).with_name("changes_topology.py")
SLOT = "followed"


def changes(folder: Path) -> list[dict[str, Any]]:
    """Return the changes in the files, in the order of the log."""
    lines = [line for path in folder.glob("[!.]*.jsonl") for line in path.read_text().splitlines()]
    return sorted(map(json.loads, lines), key=lambda change: (lsn_of(change["lsn"]), change["index"]))


def replica(found: list[dict[str, Any]]) -> dict[int, int]:
    """Return the table that results from the changes."""
    table: dict[int, int] = {}
    for change in found:
        if change["old"] is not None:
            del table[change["old"]["id"]]
        if change["new"] is not None:
            assert change["new"]["id"] not in table
            table[change["new"]["id"]] = change["new"]["n"]
    return table


def test_replica_equals_the_table_after_kills(server: PostgresServer, heron: HeronCommand, tmp_path: Path) -> None:
    folder, name = tmp_path / "changes", unique("Changed")
    server.ask("CREATE TABLE followed (id int PRIMARY KEY, n int)")
    server.ask("CREATE PUBLICATION followed FOR TABLE followed")
    server.ask("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", SLOT)
    heron.submit(name, TOPOLOGY, "Changed", "--", str(folder), server.dsn, str(server.password_file), SLOT, "followed")

    def write(first: int) -> None:
        """Write two thousand changes in one transaction, which arrives in many pieces, and many small transactions."""
        server.ask(f"INSERT INTO followed SELECT n, n FROM generate_series({first}, {first + 1999}) n")
        with server.connect() as connection:
            for number in range(first, first + 100):
                connection.execute("UPDATE followed SET n = n + 1000000 WHERE id = %s", (number,))
                connection.execute("DELETE FROM followed WHERE id = %s", (number + 500,))

    def table() -> dict[int, int]:
        return dict(server.ask("SELECT id, n FROM followed"))

    def processes(component: str) -> list[int]:
        return [p["pid"] for p in heron.status(name)["processes"] if p.get("component") == component]

    def becomes_equal(what: str) -> None:
        expected = table()
        wait_until_equal(lambda: replica(changes(folder)) == expected, True, f"the replica is the table {what}")

    write(0)
    becomes_equal("at first")
    for number, component in enumerate(["changes", "log", "changes"], 1):
        write(number * 10_000)
        os.kill(processes(component)[0], signal.SIGKILL)
        write(number * 10_000 + 5_000)
        becomes_equal(f"after the death of a task of {component}")
    server.kill()
    server.start()
    write(100_000)
    becomes_equal("after the death of the server")
    found = changes(folder)
    assert len({(change["lsn"], change["index"]) for change in found}) == len(found) == 8 * 2200
    (last,) = server.ask("SELECT pg_current_wal_flush_lsn()")[0]

    def confirmed() -> int:
        statement = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s"
        return lsn_of(server.ask(statement, SLOT)[0][0])

    wait_until(lambda: confirmed() >= lsn_of(last), "the log is let go", 60)
    heron.kill(name)
    assert server.ask("SELECT active FROM pg_replication_slots WHERE slot_name = %s", SLOT) == [(False,)]
    server.ask("SELECT pg_drop_replication_slot(%s)", SLOT)
