"""Checkpoints in a topology's storage: lists and details of manifests, as text and as JSON.

The store names the newest complete one. Before it, the newest checkpoint of each turn was complete; an older one of the
same turn was not. Checkpoints newer than the last complete one are incomplete, or may still become complete. A restore
to an older checkpoint deletes the later ones, and turns continue from there. Parts are not opened here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from heron_runtime.checkpoint_files import CheckpointFolder, checkpoint_folder
from heron_runtime.failures import Failure, NotFound, UsageError
from heron_runtime.model.checkpoints import CheckpointRecord, Manifest, keeps_state
from heron_runtime.model.records import TopologyRecord
from heron_runtime.model.settings import Keys, setting
from heron_runtime.state import paths
from heron_runtime.state.store import StateStore
from heron_runtime.state.topologies import decoded
from heron_runtime.wire import message_codecs
from heron_runtime.wire.errors import MalformedMessage

SHOWN = 10  # maximum number of checkpoints named in an error


def storage_of(record: TopologyRecord) -> CheckpointFolder:
    """Return the storage of a topology's checkpoints.

    Raises:
        UsageError: The topology is stateless, or its setting is invalid.
    """
    name, config = record.definition.name, record.definition.config
    if not keeps_state(config):
        raise UsageError(f"{name} has no checkpoints: its topology.reliability.mode is not EFFECTIVELY_ONCE")
    try:
        return checkpoint_folder(setting(config, Keys.TOPOLOGY_STATEFUL_CHECKPOINT_STORAGE), record.execution.home)
    except ValueError as error:
        raise UsageError(str(error)) from None


def record_in(store: StateStore, name: str) -> CheckpointRecord:
    """Return the store's record of a topology's checkpoints.

    Raises:
        StoreError: The store is unavailable or the record is damaged.
    """
    path = paths.checkpoints(name)
    record: CheckpointRecord | None = decoded(path, store.get(path), message_codecs.CHECKPOINT_RECORD)
    return CheckpointRecord() if record is None else record


def rows(folder: CheckpointFolder, complete: int) -> list[dict[str, Any]]:
    """Return a row for each manifest in the storage, in order.

    Raises:
        OSError: The storage cannot be read.
    """
    manifests: dict[int, Manifest | str] = {}
    for number in folder.manifests():
        try:
            manifests[number] = folder.read_manifest(number)
        except FileNotFoundError:
            continue  # removed after it was listed
        except MalformedMessage as error:
            manifests[number] = f"its manifest is incomplete: {error}"
    done = complete_ones({n: m.turn for n, m in manifests.items() if isinstance(m, Manifest)}, complete)
    return [_row(folder, number, one, number in done) for number, one in manifests.items()]


def complete_ones(turns: Mapping[int, int], complete: int) -> set[int]:
    """Return the complete ones of these checkpoints; ``complete`` is the last one."""
    last = turns.get(complete, max(turns.values(), default=0))  # of later turns are those that were struck off
    newest = {turn: number for number, turn in sorted(turns.items()) if number <= complete and turn <= last}
    return set(newest.values())


def _row(folder: CheckpointFolder, number: int, manifest: Manifest | str, complete: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"checkpoint": number, "written_at": _written(folder, number), "complete": complete}
    if isinstance(manifest, str):
        return {**row, "generation": None, "turn": None, "bytes": None, "tasks": None, "damaged": manifest}
    size = sum(part.size for part in manifest.parts)
    return {
        **row, "generation": manifest.generation, "turn": manifest.turn, "bytes": size, "tasks": len(manifest.parts),
        "damaged": None,
    }  # fmt: skip


def read_manifest(folder: CheckpointFolder, number: int) -> Manifest:
    """Return one manifest.

    Raises:
        NotFound: The number does not exist.
        Failure: The manifest is damaged.
        OSError: The manifest cannot be read.
    """
    try:
        return folder.read_manifest(number)
    except FileNotFoundError:
        known = folder.manifests()
        there = f"The newest are {', '.join(map(str, known[-SHOWN:]))}." if known else "There is none at all."
        raise NotFound(f"no checkpoint {number} below {folder.folder}", there) from None
    except MalformedMessage as error:
        raise Failure(f"the manifest of checkpoint {number} below {folder.folder} is incomplete: {error}") from None


def details(folder: CheckpointFolder, number: int, complete: int) -> dict[str, Any]:
    """Return the content of a manifest. Raises as ``read_manifest``."""
    manifest = read_manifest(folder, number)
    newer = (m for m in rows(folder, complete) if m["checkpoint"] == number)
    return {
        **next(newer, {}),
        "plan": str(manifest.plan),
        "code_digest": manifest.code_digest or None,
        "parts": [
            {
                "component": part.component,
                "task": part.task,
                "file": part.name,
                "bytes": part.size,
                "key_groups": part.groups.bit_count(),
                "tokens": [{"checkpoint": token.checkpoint, "name": token.name} for token in part.tokens],
            }
            for part in manifest.parts
        ],
        "layers": {
            component: {
                "files": len(parts),
                "bytes": sum(part.size for part in parts),
                "oldest": min(part.checkpoint for part in parts),
            }
            for component, parts in manifest.layers.items()
            if parts
        },
        "key_groups": {
            component: {str(task): table.count(task) for task in sorted(set(table))}
            for component, table in manifest.tables.items()
        },
        "files": len(manifest.files),
    }


def _written(folder: CheckpointFolder, number: int) -> str | None:
    try:
        seconds = folder.manifest_time(number)
    except OSError:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
