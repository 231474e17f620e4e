"""``heron list``: the topologies of a cluster."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from heronry.cli.address import parse_address
from heronry.cli.clusters import Cluster, cluster_named
from heronry.cli.console import Format, print_json, print_table, say, state_text
from heronry.cli.errors import CliError
from heronry.cli.options import Output, Place, Verbose
from heronry.cli.topology_status import iso, topology_status
from heronry.model.stored import ExecutionState
from heronry.state import topologies
from heronry.state.store import StateStore, StoreError
from heronry.state.topologies import TopologyRecord

AT_ONCE = 16


def list_topologies(place: Place, output: Output = Format.TABLE, verbose: Verbose = False) -> None:
    """List the topologies of a cluster, or of one role and environment in it."""
    address = parse_address(place)
    cluster = cluster_named(address.cluster)
    with cluster.open_store() as store:
        found = [s for s in topologies.list_topologies(store) if address.covers(s.role, s.environ)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            rows = list(pool.map(lambda state: _row(cluster, store, state), found))
    if output is Format.JSON:
        print_json(rows)
        return
    if not rows:
        say(f"no topology runs at {place}")
        return
    columns = ("topology", "role", "environ", "state", "containers", "tasks", "submitted_at")
    cells = [[state_text(row[c]) if c == "state" else row[c] for c in columns] for row in rows]
    print_table(columns, cells, numbers=("containers", "tasks"))


def _row(cluster: Cluster, store: StateStore, state: ExecutionState) -> dict[str, Any]:
    try:
        record: TopologyRecord | None = topologies.read_topology(store, state.topology)
    except StoreError:
        record = None  # killed a moment ago, or damaged: listed with what is known
    return {
        "cluster": state.cluster,
        "role": state.role,
        "environ": state.environ,
        "topology": state.topology,
        "state": _state(cluster, record) if record else "failing",
        "containers": len(record.packing.containers) if record else None,
        "tasks": len(record.packing.instances()) if record else None,
        "submitted_at": iso(state.submitted_at),
    }


def _state(cluster: Cluster, record: TopologyRecord) -> str:
    try:
        answers = cluster.asker(record).everybody(record)
    except CliError:
        return "failing"  # its folder is gone, so nobody can be asked
    return topology_status(record, answers, time.time()).state
