"""``heron logs``: the end of a process's log, and what comes, by component, instance or process name."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import grpc
import typer

from heronry.api.errors import did_you_mean
from heronry.cli.address import parse_address
from heronry.cli.ask import Asker
from heronry.cli.clusters import cluster_named, find_topology
from heronry.cli.console import note, print_line, print_table, visible
from heronry.cli.errors import NotFound, Unavailable
from heronry.cli.log_reading import Follower, Reader, read_local, tail
from heronry.cli.options import Name, Place, Verbose
from heronry.cli.topology_status import HERON_SCHEDULER, expected_processes
from heronry.net.services import CONTAINER_SERVICE
from heronry.state.topologies import TopologyRecord
from heronry.wire.container import FileData, ReadFile

POLL_SECS = 0.25


def logs(
    place: Place,
    name: Name,
    target: Annotated[
        str | None, typer.Argument(metavar="[COMPONENT|INSTANCE|PROCESS]", help="Whose log; listed if left out.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on showing what is added.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, max=100_000, help="Begin with so many lines.")] = 100,
    verbose: Verbose = False,
) -> None:
    """Show the logs of a component, an instance or any other process of a topology."""
    address = parse_address(place)
    cluster = cluster_named(address.cluster)
    with cluster.open_store() as store:
        record = find_topology(store, address, name)
    if target is None:
        columns = ("process", "component", "container")
        rows = [(process, component, container) for process, component, container in logged_processes(record)]
        print_table(columns, rows, numbers=("container",))
        return
    reader = LogReader(record, cluster.asker(record), cluster.log_folder(record))
    chosen = choose(record, target)
    width = max(len(process) for process, _ in chosen) if len(chosen) > 1 else 0
    followers = []
    missing = 0
    for process, container in chosen:
        read = reader.of(container)
        try:
            data, end = tail(read, f"{process}.log", lines)
        except FileNotFoundError:
            missing += 1
            data, end = b"", 0
        _print(process, data.splitlines(), width)
        followers.append((process, Follower(read, f"{process}.log", end)))
    if missing == len(chosen) and not follow:
        raise NotFound(f"{target} has written no log yet")
    while follow:
        new = [(process, follower.lines()) for process, follower in followers]
        for process, added in new:
            _print(process, added, width)
        sys.stdout.flush()
        if not any(added for _, added in new):
            time.sleep(POLL_SECS)


def logged_processes(record: TopologyRecord) -> list[tuple[str, str, int]]:
    """(process, component, container) of everyone who writes a log."""
    expected = [(name, component, number) for _, name, number, component, _ in expected_processes(record)]
    return [(HERON_SCHEDULER, "", 0), *expected]


def choose(record: TopologyRecord, target: str) -> list[tuple[str, int]]:
    """(process, container) of what ``target`` names: one process, or all tasks of a component. Raises NotFound."""
    everybody = logged_processes(record)
    found = [(process, number) for process, component, number in everybody if target in (process, component)]
    if found:
        return found
    known = [process for process, _, _ in everybody] + [spec.name for spec in record.definition.components]
    raise NotFound(
        f"{record.definition.name} has no component, instance or process {target!r}{did_you_mean(target, known)}",
        f"`heron logs` without it lists them: `heron logs {record.execution.cluster} {record.definition.name}`.",
    )


class LogReader:
    """Reads a container's logs through the container, or from the disk where that does not answer."""

    def __init__(self, record: TopologyRecord, asker: Asker, folder: Path | None) -> None:
        self._record = record
        self._asker = asker
        self._folder = folder

    def of(self, container: int) -> Reader:
        """The reader for the processes of one container."""
        location = self._record.container(container)
        local = read_local(self._folder) if self._folder is not None else None

        def read(path: str, offset: int, length: int) -> FileData:
            nonlocal location
            if location is not None:
                try:
                    reply: FileData = self._asker.call(
                        location, CONTAINER_SERVICE, "ReadFile", ReadFile(path, offset, length)
                    )
                    return reply
                except grpc.RpcError as error:
                    if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.NOT_FOUND:
                        raise FileNotFoundError(2, "there is no such log", path) from error
                    if local is None:
                        raise
                    note(f"container {container} does not answer; reading its logs from the disk")
                    location = None
            if local is None:
                raise Unavailable(f"container {container} does not answer, and its logs are not on this machine")
            return local(path, offset, length)

        return read


def _print(process: str, lines: Iterable[bytes] | Sequence[bytes], width: int) -> None:
    for line in lines:
        text = visible(line.decode(errors="replace").rstrip("\r\n"))
        if width:
            print_line(f"{process:<{width}} | {text}")
        else:
            sys.stdout.write(text + "\n")
