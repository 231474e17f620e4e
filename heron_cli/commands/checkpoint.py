"""``heron checkpoint`` and ``heron restore``: the checkpoints of a topology with state."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated, Any

import typer

from heron_cli.clusters import connect_cluster
from heron_cli.console import (
    Format,
    format_age,
    format_bytes,
    print_json,
    print_line,
    print_message,
    print_table,
    spinner,
)
from heron_cli.options import ClusterArgument, OutputOption, TopologyArgument, VerboseOption, WaitTimeoutOption
from heron_cli.wait import wait_for_state
from heron_control.inspection.checkpoint_copies import DamagedCheckpoint

COLUMNS = ("checkpoint", "name", "written", "generation", "turn", "bytes", "tasks", "complete")
NUMBERS = ("checkpoint", "written", "generation", "turn", "bytes", "tasks")
Which = Annotated[str, typer.Argument(metavar="CHECKPOINT", help="Number or name in `heron checkpoint list`.")]


def list_checkpoints(
    place: ClusterArgument, name: TopologyArgument, output: OutputOption = Format.TABLE, verbose: VerboseOption = False
) -> None:
    """List the checkpoints of a topology, including named ones.

    Example: heron checkpoint list local WordCount
    """
    cluster, address = connect_cluster(place)
    rows = cluster.checkpoints(address, name)
    if output is Format.JSON:
        print_json(rows)
    elif not rows:
        print_message(f"{name} has no checkpoint yet")
    else:
        print_table(COLUMNS, [_cells(row, time.time()) for row in rows], NUMBERS)


def inspect(
    place: ClusterArgument,
    name: TopologyArgument,
    which: Which,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read and verify all files. Exit code 1 if one is damaged.")
    ] = False,
    output: OutputOption = Format.TABLE,
    verbose: VerboseOption = False,
) -> None:
    """Print the parts, files, key groups and sink tokens of a checkpoint.

    Example: heron checkpoint inspect local WordCount 12 --verify
    """
    cluster, address = connect_cluster(place)
    document = cluster.checkpoint(address, name, which, verify=verify)
    damaged = document.get("damaged_files") or []
    if output is Format.JSON:
        print_json(document)
    else:
        _print_checkpoint(document)
        if verify and not damaged:
            print_line(f"all {document['files']} files are intact", "green")
    if damaged:
        raise DamagedCheckpoint(
            f"checkpoint {which} of {name} is damaged: {len(damaged)} of {document['files']} files",
            "Restore the files from a copy: a topology cannot start from it.",
            details=damaged,
        )


def create(
    place: ClusterArgument,
    name: TopologyArgument,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the checkpoint is complete.")] = False,
    wait_timeout: WaitTimeoutOption = 300.0,
    label: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="Keep a complete copy under this name until it is deleted. Implies --wait."
        ),
    ] = None,
    verbose: VerboseOption = False,
) -> None:
    """Take a checkpoint.

    Example: heron checkpoint create local WordCount --name before-v2
    """
    cluster, address = connect_cluster(place)
    if label is not None:
        with cluster.session(), spinner(f"waiting for the topology master of {name}") as progress:
            number, folder = cluster.name_checkpoint(address, name, label, max(wait_timeout, 1.0), progress)
        print_message(f"checkpoint {number} of {name} is kept as {label} in {folder}", "green")
        return
    with spinner(f"waiting for the topology master of {name}") as progress:
        number = cluster.take_checkpoint(address, name, max(wait_timeout, 1.0) if wait else 0.0, progress)
    if wait:
        print_message(f"checkpoint {number} of {name} is complete", "green")
    else:
        print_message(f"a checkpoint of {name} is requested; `heron status` shows its progress", "green")


def delete(
    place: ClusterArgument,
    name: TopologyArgument,
    label: Annotated[str, typer.Argument(metavar="NAME", help="Name of the checkpoint.")],
    verbose: VerboseOption = False,
) -> None:
    """Delete a named checkpoint. Other checkpoints are removed automatically.

    Example: heron checkpoint delete local WordCount before-v2
    """
    cluster, address = connect_cluster(place)
    cluster.delete_checkpoint(address, name, label)
    print_message(f"checkpoint {label} of {name} is deleted", "green")


def restore(
    place: ClusterArgument,
    name: TopologyArgument,
    number: Annotated[
        int | None,
        typer.Argument(metavar="[CHECKPOINT]", min=1, help="An older checkpoint of `heron checkpoint list`."),
    ] = None,
    repeat_output: Annotated[
        bool, typer.Option("--repeat-output", help="Required for an older checkpoint: later output is written again.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the topology runs again.")] = True,
    wait_timeout: WaitTimeoutOption = 120.0,
    verbose: VerboseOption = False,
) -> None:
    """Restore all tasks of a topology from its last complete checkpoint, or from an older one.

    Also after the topology has failed. Checkpoints after an older one are discarded.

    Example: heron restore local WordCount
    """
    cluster, address = connect_cluster(place)
    with cluster.session(), spinner(f"waiting for the topology master of {name}") as progress:
        topology_id = cluster.status(address, name).execution.topology_id if wait else ""
        generation, checkpoint = cluster.restore(address, name, number or 0, progress, repeat_output=repeat_output)
        if wait:
            wait_for_state(cluster, address, name, topology_id, timeout_secs=wait_timeout, progress=progress)
    start = f"checkpoint {checkpoint}" if checkpoint else "the initial state"
    print_message(f"{name} {'runs again' if wait else 'is restored'} from {start}, in generation {generation}", "green")


def _cells(row: dict[str, Any], now: float) -> list[object]:
    when = (
        format_age(now - datetime.fromisoformat(row["written_at"]).timestamp()) + " ago" if row["written_at"] else None
    )
    complete = row["damaged"] or ("yes" if row["complete"] else "no")
    size_text = format_bytes(row["bytes"]) if row["bytes"] is not None else None
    return [row["checkpoint"], row["name"], when, row["generation"], row["turn"], size_text, row["tasks"], complete]


def _print_checkpoint(document: dict[str, Any]) -> None:
    complete = "complete" if document["complete"] else "not complete"
    if document["folder"]:
        print_line(f"{document['name']}, in {document['folder']}")
    print_line(
        f"checkpoint {document['checkpoint']}, {complete}, written {document['written_at']}: generation "
        f"{document['generation']}, turn {document['turn']}, plan {document['plan']}, {format_bytes(document['bytes'])}"
    )
    columns = ("component", "task", "bytes", "key groups", "tokens", "file")
    rows = [
        (
            p["component"],
            p["task"],
            format_bytes(p["bytes"]),
            p["key_groups"] or None,
            len(p["tokens"]) or None,
            p["file"],
        )
        for p in document["parts"]
    ]
    print_table(columns, rows, ("task", "bytes", "key groups", "tokens"))
    for component, layers in document["layers"].items():
        owners = ", ".join(f"task {task}: {count}" for task, count in document["key_groups"].get(component, {}).items())
        print_line(
            f"{component} is restored from {layers['files']} files, {format_bytes(layers['bytes'])}, "
            f"the oldest of checkpoint {layers['oldest']}; key groups: {owners}"
        )
    for part in document["parts"]:
        for token in part["tokens"]:
            print_line(f"task {part['task']} commits {token['name']} (prepared for {token['checkpoint']})")
