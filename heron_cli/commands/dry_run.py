"""The packing plan that ``heron submit --dry-run`` prints, in Heron's form, and the stages of a Streamlet program."""

from __future__ import annotations

import sys
from enum import StrEnum

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from heron_cli.console import print_json, print_line, stdout_console
from heron_control.packing import describe
from heron_runtime.model.containers import MASTER_RESOURCES, standbys_of
from heron_runtime.model.plan import ContainerPlan, PackingPlan, Resources
from heron_runtime.model.settings import Keys, MiB, setting
from heron_runtime.model.topology import TopologyDefinition

STEPS = "user.streamlet.steps"  # set by heronry.streamlet.online.compile, which a dry run does not import


class DryRunFormat(StrEnum):
    """Format of the plan."""

    TABLE = "table"
    COLORED_TABLE = "colored_table"
    JSON = "json"
    RAW = "raw"


def print_plan(definition: TopologyDefinition, packing: PackingPlan, requested: DryRunFormat | None) -> None:
    """Print the plan, by default colored on a terminal."""
    default = DryRunFormat.COLORED_TABLE if sys.stdout.isatty() else DryRunFormat.TABLE
    format_ = requested or default
    if format_ is DryRunFormat.JSON:
        print_json(describe(packing, definition.config))
        return
    if format_ is DryRunFormat.RAW:
        print_line(repr(packing))
        return
    console = stdout_console()
    if format_ is DryRunFormat.COLORED_TABLE and requested is not None:
        console = Console(file=sys.stdout, force_terminal=True, highlight=False, markup=False, emoji=False)
    algorithm = setting(definition.config, Keys.TOPOLOGY_PACKING)
    _print_stages(definition, console)
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


def _print_stages(definition: TopologyDefinition, console: Console) -> None:
    """Print the steps of each component."""
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
    """Return CPU in cores, and RAM and disk in MiB."""
    return f"{needs.cpu:g}", f"{needs.ram_bytes / MiB:.0f}", f"{needs.disk_bytes / MiB:.0f}"
