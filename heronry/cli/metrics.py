"""``heron metrics``: what flows through each component, from the topology master."""

from __future__ import annotations

from typing import Annotated

import typer

from heronry.api.errors import did_you_mean
from heronry.cli import metrics_table
from heronry.cli.address import parse_address
from heronry.cli.clusters import cluster_named, find_topology
from heronry.cli.console import Format, print_json, print_table, say
from heronry.cli.errors import NotFound, Unavailable
from heronry.cli.options import Name, Output, Place, Verbose
from heronry.net.services import MASTER_SERVICE
from heronry.wire.master import MetricsRequest

SINCE_THE_START = -1.0


def metrics(
    place: Place,
    name: Name,
    wanted: Annotated[
        list[str] | None, typer.Argument(metavar="[METRIC]...", help="Heron names, as __emit-count/default.")
    ] = None,
    component: Annotated[str, typer.Option("--component", help="Of this component only.")] = "",
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", help="Of the last seconds; all time if left out.")
    ] = SINCE_THE_START,
    output: Output = Format.TABLE,
    verbose: Verbose = False,
) -> None:
    """Show metrics of a topology: counts, rates, latencies."""
    address = parse_address(place)
    cluster = cluster_named(address.cluster)
    with cluster.open_store() as store:
        record = find_topology(store, address, name)
    known = [spec.name for spec in record.definition.components]
    if component and component not in known and not component.startswith("__"):
        raise NotFound(f"{name} has no component {component!r}{did_you_mean(component, known)}")
    if record.master is None:
        raise Unavailable(f"{name} has no topology master at this moment", "Try again in a few seconds.")
    request = MetricsRequest(component, interval)
    reply = cluster.asker(record).call(record.master, MASTER_SERVICE, "Metrics", request)
    if output is Format.JSON:
        print_json(metrics_table.as_json(name, reply, wanted or ()))
        return
    span = f"the last {reply.interval_seconds:.0f} s" if interval > 0 else "all time"
    say(f"{name}, {span}")
    if wanted or component.startswith("__"):
        columns = ("component", "instance", "metric", "total", "rate/s", "p50 ms", "p99 ms")
        print_table(columns, metrics_table.detail_rows(reply, wanted or ()), columns[3:])
        return
    if not any(value.component in known for value in reply.values):
        say("no task has reported yet: each does, every few seconds (heron.metrics.interval.secs)")
    shown = {s.name: s.is_spout for s in record.definition.components if component in ("", s.name)}
    print_table(metrics_table.COLUMNS, metrics_table.as_rows(reply, shown), metrics_table.NUMBERS)
