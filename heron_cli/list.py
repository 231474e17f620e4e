"""``heron list``: the topologies of a cluster."""

from __future__ import annotations

from heron_cli.clusters import cluster_at
from heron_cli.console import Format, print_json, print_table, say, state_text
from heron_cli.options import Output, Place, Verbose


def list_topologies(place: Place, output: Output = Format.TABLE, verbose: Verbose = False) -> None:
    """List the topologies of a cluster, or of one role and environment in it."""
    cluster, address = cluster_at(place)
    rows = cluster.topologies(address)
    if output is Format.JSON:
        print_json(rows)
        return
    if not rows:
        say(f"no topology runs at {place}")
        return
    columns = ("topology", "role", "environ", "state", "containers", "tasks", "submitted_at")
    cells = [[state_text(row[c]) if c == "state" else row[c] for c in columns] for row in rows]
    print_table(columns, cells, numbers=("containers", "tasks"))
