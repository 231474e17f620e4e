"""``heron submit --dry-run``: the packing plan, as Heron's users know it; of a Streamlet program also its stages."""

from __future__ import annotations

import sys
from enum import StrEnum

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from heron_cli.console import out, print_json, print_line
from heron_control.packing import describe
from heron_runtime.model.containers import MASTER_RESOURCES, standbys_of
from heron_runtime.model.plan import ContainerPlan, PackingPlan, Resources
from heron_runtime.model.settings import Keys, MiB, setting
from heron_runtime.model.topology import TopologyDefinition

STEPS = "user.streamlet.steps"  # set by heronry.streamlet.online.compile, which is not imported for a dry run


class DryRunFormat(StrEnum):
    """How the plan is shown."""

    TABLE = "table"
    COLORED_TABLE = "colored_table"
    JSON = "json"
    RAW = "raw"


def show(definition: TopologyDefinition, packing: PackingPlan, wanted: DryRunFormat | None) -> None:
    """Print the plan on stdout."""
    default = DryRunFormat.COLORED_TABLE if sys.stdout.isatty() else DryRunFormat.TABLE
    chosen = wanted or default
    if chosen is DryRunFormat.JSON:
        print_json(describe(packing, definition.config))
        return
    if chosen is DryRunFormat.RAW:
        print_line(repr(packing))
        return
    console = out()
    if chosen is DryRunFormat.COLORED_TABLE and wanted is not None:
        console = Console(file=sys.stdout, force_terminal=True, highlight=False, markup=False, emoji=False)
    algorithm = setting(definition.config, Keys.TOPOLOGY_PACKING)
    _show_stages(definition, console)
    console.print(Text(f"Total number of containers: {len(packing.containers)}"))
    console.print(Text(f"Using packing class: {algorithm}"))
    for container in packing.containers:
        console.print(Text(f"\nContainer {container.container}", style="bold"))
        cpu, ram, disk = _sizes(container.resources)
        console.print(Text(f"CPU: {cpu}, RAM: {ram} MB, Disk: {disk} MB"))
        console.print(_table(container))
    for number in standbys_of(definition.config):
        console.print(Text(f"\nContainer {number}, a standby of the topology master", style="bold"))
        cpu, ram, disk = _sizes(MASTER_RESOURCES)
        console.print(Text(f"CPU: {cpu}, RAM: {ram} MB, Disk: {disk} MB"))


def _show_stages(definition: TopologyDefinition, console: Console) -> None:
    """Which steps run together in which component."""
    staged = [spec for spec in definition.components if STEPS in spec.config]
    if staged:
        console.print(Text(f"Streamlet program {definition.name}:"))
    for spec in staged:
        tasks = "1 task" if spec.parallelism == 1 else f"{spec.parallelism} tasks"
        reads = ", ".join(dict.fromkeys(edge.component for edge in spec.inputs))
        console.print(Text(f"  {spec.name}, {tasks}: {', '.join(spec.config[STEPS])}{reads and f' <- {reads}'}"))


def _table(container: ContainerPlan) -> Table:
    table = Table(box=box.ASCII2, header_style="bold")
    table.add_column("component", style="green")
    for name in ("task ID", "CPU", "RAM (MB)", "disk (MB)"):
        table.add_column(name, justify="right")
    for task in container.instances:
        table.add_row(Text(task.component), str(task.task), *_sizes(task.resources))
    return table


def _sizes(needs: Resources) -> tuple[str, str, str]:
    """Cores, MiB, MiB."""
    return f"{needs.cpu:g}", f"{needs.ram_bytes / MiB:.0f}", f"{needs.disk_bytes / MiB:.0f}"
