"""``heron metrics``: what flows through each component, from the topology master."""

from __future__ import annotations

from typing import Annotated

import typer

from heron_cli.clusters import cluster_at
from heron_cli.console import Format, print_json, print_table, say
from heron_cli.options import Name, Output, Place, Verbose
from heron_control.inspection import metrics_table
from heron_control.inspection.inspector import SINCE_THE_START


def metrics(
    place: Place,
    name: Name,
    wanted: Annotated[
        list[str] | None, typer.Argument(metavar="[METRIC]...", help="Metric names, for example __emit-count/default.")
    ] = None,
    component: Annotated[str, typer.Option("--component", help="Only this component.")] = "",
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", help="Only the last seconds. Default: since the start.")
    ] = SINCE_THE_START,
    output: Output = Format.TABLE,
    verbose: Verbose = False,
) -> None:
    """Print counts, rates and latencies of a topology."""
    cluster, address = cluster_at(place)
    found = cluster.metrics(address, name, component, interval, wanted or ())
    if output is Format.JSON:
        print_json({key: value for key, value in found.items() if key != "flow"})
        return
    span = f"the last {found['interval']:.0f} s" if interval > 0 else "all time"
    say(f"{name}, {span}")
    if wanted or component.startswith("__"):
        columns = ("component", "instance", "metric", "total", "rate/s", "p50 ms", "p99 ms")
        print_table(columns, metrics_table.detail_rows(found), columns[3:])
        return
    if not any(row["component"] in found["components"] for row in found["flow"]):
        say("no task has reported yet: each does, every few seconds (heron.metrics.interval.secs)")
    print_table(metrics_table.COLUMNS, metrics_table.flow_rows(found), metrics_table.NUMBERS)
