"""Topology that writes changes of tables to files, exactly once.

heron submit local changes_topology.py Changed -- FOLDER DSN PASSWORD_FILE SLOT PUBLICATION
"""

from __future__ import annotations

import sys

from heronry import Config, Grouping, Topology
from heronry.connect.files import JsonLinesSink
from heronry.connect.postgres_changes import PostgresChanges


class Changed(Topology):
    """Topology changes -> files."""

    _folder, _dsn, _password_file, _slot, _publication = sys.argv[1:]
    config = {
        Config.TOPOLOGY_RELIABILITY_MODE: Config.EFFECTIVELY_ONCE,
        Config.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECS: 0.5,
    }
    changes = PostgresChanges.spec(
        par=1,
        optional_outputs=["op", "new", "old", "lsn", "index"],
        config={
            "user.postgres.dsn": _dsn, "user.postgres.password.file": _password_file, "user.postgres.slot": _slot,
            "user.postgres.publication": _publication, "user.postgres.rows": 50, "user.postgres.poll.secs": 0.05,
        },
    )  # fmt: skip
    log = JsonLinesSink.spec(par=2, inputs={changes: Grouping.SHUFFLE}, config={"user.sink.folder": _folder})
