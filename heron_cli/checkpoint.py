"""``heron checkpoint``: the checkpoints of a topology that keeps state; and ``heron restore``, back to the last one."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated, Any

import typer

from heron_cli.clusters import cluster_at
from heron_cli.console import Format, age, print_json, print_line, print_table, say, size, spinner
from heron_cli.options import Name, Output, Place, Verbose, WaitTimeout
from heron_cli.wait import wait_for_state
from heron_control.inspection.whole_files import DamagedCheckpoint

COLUMNS = ("checkpoint", "name", "written", "generation", "turn", "bytes", "tasks", "complete")
NUMBERS = ("checkpoint", "written", "generation", "turn", "bytes", "tasks")
Which = Annotated[str, typer.Argument(metavar="CHECKPOINT", help="Number or name in `heron checkpoint list`.")]


def list_checkpoints(place: Place, name: Name, output: Output = Format.TABLE, verbose: Verbose = False) -> None:
    """List the checkpoints of a topology, including named ones."""
    cluster, address = cluster_at(place)
    rows = cluster.checkpoints(address, name)
    if output is Format.JSON:
        print_json(rows)
    elif not rows:
        say(f"{name} has no checkpoint yet")
    else:
        print_table(COLUMNS, [_cells(row, time.time()) for row in rows], NUMBERS)


def inspect(
    place: Place,
    name: Name,
    which: Which,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read and verify all files. Exit code 1 if one is damaged.")
    ] = False,
    output: Output = Format.TABLE,
    verbose: Verbose = False,
) -> None:
    """Print the parts, files, key groups and sink tokens of a checkpoint."""
    cluster, address = cluster_at(place)
    found = cluster.checkpoint(address, name, which, verify=verify)
    damaged = found.get("damaged_files") or []
    if output is Format.JSON:
        print_json(found)
    else:
        _show(found)
        if verify and not damaged:
            print_line(f"its {found['files']} files are whole", "green")
    if damaged:
        raise DamagedCheckpoint(
            f"checkpoint {which} of {name} is damaged: {len(damaged)} of its {found['files']} files",
            "A topology that reads it fails; restore the files from a copy.",
            details=damaged,
        )


def create(
    place: Place,
    name: Name,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the checkpoint is complete.")] = False,
    wait_timeout: WaitTimeout = 300.0,
    label: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="Keep a complete copy under this name until it is deleted. Implies --wait."
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Take a checkpoint."""
    cluster, address = cluster_at(place)
    if label is not None:
        with cluster.session(), spinner(f"asking the topology master of {name}") as progress:
            number, folder = cluster.name_checkpoint(address, name, label, max(wait_timeout, 1.0), progress)
        say(f"checkpoint {number} of {name} is kept as {label}, in {folder}", "green")
        return
    with spinner(f"asking the topology master of {name}") as progress:
        number = cluster.take_checkpoint(address, name, max(wait_timeout, 1.0) if wait else 0.0, progress)
    if wait:
        say(f"checkpoint {number} of {name} is complete", "green")
    else:
        say(f"a checkpoint of {name} is asked for; `heron status` shows how it goes", "green")


def delete(
    place: Place,
    name: Name,
    label: Annotated[str, typer.Argument(metavar="NAME", help="Name of the checkpoint.")],
    verbose: Verbose = False,
) -> None:
    """Delete a named checkpoint. Other checkpoints are removed automatically."""
    cluster, address = cluster_at(place)
    cluster.delete_checkpoint(address, name, label)
    say(f"checkpoint {label} of {name} is deleted", "green")


def restore(
    place: Place,
    name: Name,
    number: Annotated[
        int | None,
        typer.Argument(metavar="[CHECKPOINT]", min=1, help="An older checkpoint of `heron checkpoint list`."),
    ] = None,
    repeat_output: Annotated[
        bool, typer.Option("--repeat-output", help="Required for an older checkpoint: later output is written again.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the topology runs again.")] = True,
    wait_timeout: WaitTimeout = 120.0,
    verbose: Verbose = False,
) -> None:
    """Restore all tasks of a topology from its last complete checkpoint or an older one, also after it has failed.

    Checkpoints newer than the chosen one are deleted.
    """
    cluster, address = cluster_at(place)
    with cluster.session(), spinner(f"asking the topology master of {name}") as progress:
        topology_id = cluster.status(address, name).execution.topology_id if wait else ""
        generation, checkpoint = cluster.restore(address, name, number or 0, progress, repeat_output=repeat_output)
        if wait:
            wait_for_state(cluster, address, name, topology_id, timeout_secs=wait_timeout, progress=progress)
    start = f"checkpoint {checkpoint}" if checkpoint else "the initial state"
    say(f"{name} {'runs again' if wait else 'is restored'} from {start}, in generation {generation}", "green")


def _cells(row: dict[str, Any], now: float) -> list[object]:
    when = age(now - datetime.fromisoformat(row["written_at"]).timestamp()) + " ago" if row["written_at"] else None
    complete = row["damaged"] or ("yes" if row["complete"] else "no")
    size_text = size(row["bytes"]) if row["bytes"] is not None else None
    return [row["checkpoint"], row["name"], when, row["generation"], row["turn"], size_text, row["tasks"], complete]


def _show(found: dict[str, Any]) -> None:
    complete = "complete" if found["complete"] else "not complete"
    if found["folder"]:
        print_line(f"{found['name']}, in {found['folder']}")
    print_line(
        f"checkpoint {found['checkpoint']}, {complete}, written {found['written_at']}: generation "
        f"{found['generation']}, turn {found['turn']}, plan {found['plan']}, {size(found['bytes'])}"
    )
    columns = ("component", "task", "bytes", "key groups", "tokens", "file")
    rows = [
        (p["component"], p["task"], size(p["bytes"]), p["key_groups"] or None, len(p["tokens"]) or None, p["file"])
        for p in found["parts"]
    ]
    print_table(columns, rows, ("task", "bytes", "key groups", "tokens"))
    for component, layers in found["layers"].items():
        owners = ", ".join(f"task {task}: {count}" for task, count in found["key_groups"].get(component, {}).items())
        print_line(
            f"{component} is read from {layers['files']} files, {size(layers['bytes'])}, the oldest of checkpoint "
            f"{layers['oldest']}; key groups: {owners}"
        )
    for part in found["parts"]:
        for token in part["tokens"]:
            print_line(f"task {part['task']} commits {token['name']} (prepared for {token['checkpoint']})")


COMMANDS = (("list", list_checkpoints), ("inspect", inspect), ("create", create), ("delete", delete))
