"""The checkpoints of a topology as they lie in its storage: lists and details of manifests, for people and as JSON.

Which of them counts is said by the store: the newest complete one. Of those before it each turn has one that was
complete, the newest; an older one of the same turn came to nothing, and so did, or may still become complete, what is
newer than the last complete one. A restore to an older one strikes off what
came behind it, and turns begin again there. The parts are not opened here.
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

SHOWN = 10  # numbers in an error


def storage_of(record: TopologyRecord) -> CheckpointFolder:
    """Where its checkpoints lie. Raises UsageError where none are taken, and for a setting that is wrong."""
    name, config = record.definition.name, record.definition.config
    if not keeps_state(config):
        raise UsageError(f"{name} takes no checkpoints: its topology.reliability.mode is not EFFECTIVELY_ONCE")
    try:
        return checkpoint_folder(setting(config, Keys.TOPOLOGY_STATEFUL_CHECKPOINT_STORAGE), record.execution.home)
    except ValueError as error:
        raise UsageError(str(error)) from None


def record_in(store: StateStore, name: str) -> CheckpointRecord:
    """Return what the store says of a topology's checkpoints. Raises StoreError, also for a damaged record."""
    path = paths.checkpoints(name)
    found: CheckpointRecord | None = decoded(path, store.get(path), message_codecs.CHECKPOINT_RECORD)
    return CheckpointRecord() if found is None else found


def rows(folder: CheckpointFolder, complete: int) -> list[dict[str, Any]]:
    """A row for each manifest in the storage, in order. Raises OSError."""
    found: dict[int, Manifest | str] = {}
    for number in folder.manifests():
        try:
            found[number] = folder.read_manifest(number)
        except FileNotFoundError:
            continue  # removed since it was listed
        except MalformedMessage as error:
            found[number] = f"its manifest is not whole: {error}"
    done = complete_ones({n: m.turn for n, m in found.items() if isinstance(m, Manifest)}, complete)
    return [_row(folder, number, one, number in done) for number, one in found.items()]


def complete_ones(turns: Mapping[int, int], complete: int) -> set[int]:
    """Those of these checkpoints that are complete; ``complete`` is the last one."""
    last = turns.get(complete, max(turns.values(), default=0))  # of later turns are those that were struck off
    newest = {turn: number for number, turn in sorted(turns.items()) if number <= complete and turn <= last}
    return set(newest.values())


def _row(folder: CheckpointFolder, number: int, found: Manifest | str, complete: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"checkpoint": number, "written_at": _written(folder, number), "complete": complete}
    if isinstance(found, str):
        return {**row, "generation": None, "turn": None, "bytes": None, "tasks": None, "damaged": found}
    size = sum(part.size for part in found.parts)
    return {
        **row, "generation": found.generation, "turn": found.turn, "bytes": size, "tasks": len(found.parts),
        "damaged": None,
    }  # fmt: skip


def read_manifest(folder: CheckpointFolder, number: int) -> Manifest:
    """One manifest. Raises NotFound, Failure if it is damaged, OSError."""
    try:
        return folder.read_manifest(number)
    except FileNotFoundError:
        known = folder.manifests()
        there = f"The newest are {', '.join(map(str, known[-SHOWN:]))}." if known else "There is none at all."
        raise NotFound(f"there is no checkpoint {number} below {folder.folder}", there) from None
    except MalformedMessage as error:
        raise Failure(f"the manifest of checkpoint {number} below {folder.folder} is not whole: {error}") from None


def details(folder: CheckpointFolder, number: int, complete: int) -> dict[str, Any]:
    """Everything a manifest says. Raises NotFound, Failure, OSError."""
    found = read_manifest(folder, number)
    newer = (m for m in rows(folder, complete) if m["checkpoint"] == number)
    return {
        **next(newer, {}),
        "plan": str(found.plan),
        "code_digest": found.code_digest or None,
        "parts": [
            {
                "component": part.component,
                "task": part.task,
                "file": part.name,
                "bytes": part.size,
                "key_groups": part.groups.bit_count(),
                "tokens": [{"checkpoint": token.checkpoint, "name": token.name} for token in part.tokens],
            }
            for part in found.parts
        ],
        "layers": {
            component: {
                "files": len(parts),
                "bytes": sum(part.size for part in parts),
                "oldest": min(part.checkpoint for part in parts),
            }
            for component, parts in found.layers.items()
            if parts
        },
        "key_groups": {
            component: {str(task): table.count(task) for task in sorted(set(table))}
            for component, table in found.tables.items()
        },
        "files": len(found.files),
    }


def _written(folder: CheckpointFolder, number: int) -> str | None:
    try:
        seconds = folder.manifest_time(number)
    except OSError:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
