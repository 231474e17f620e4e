"""Topology that writes lines of a folder to a table, exactly once.

heron submit local connected_topology.py Connected -- FOLDER DSN PASSWORD_FILE TABLE
"""

from __future__ import annotations

import sys

from heronry import Config, Grouping, Topology
from heronry.connect.files import FileLines
from heronry.connect.postgres_sink import PostgresSink


class Connected(Topology):
    """Topology lines -> table."""

    _folder, _dsn, _password_file, _table = sys.argv[1:]
    config = {
        Config.TOPOLOGY_RELIABILITY_MODE: Config.EFFECTIVELY_ONCE,
        Config.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECS: 0.5,
    }
    lines = FileLines.spec(par=2, config={"user.files.folder": _folder})
    table = PostgresSink.spec(
        par=2,
        inputs={lines: Grouping.SHUFFLE},
        config={
            "user.postgres.dsn": _dsn, "user.postgres.password.file": _password_file, "user.postgres.table": _table,
        },
    )  # fmt: skip
