"""What the log and the history are told of checkpoints and generations: words and figures, no decision.

Each checkpoint is told when its number was given out and when it ends; each generation when it begins, when it runs
and when it is the last. How many of these reach the history is bounded where they are sent
(``heron_runtime.telemetry.happenings``).
"""

from __future__ import annotations

import json

from heron_runtime.model.generations import Generation, Phase
from heron_runtime.model.history import CHECKPOINT, RESTORE
from heron_runtime.wire.master import CheckpointSummary
from topology_master.core.events import Happened, Note

CURE = "its processes stay, and do nothing; mend the cause, then `heron restore`"


def of_generation(generation: Generation, before: Generation | None) -> list[Note | Happened]:
    """A plan of this generation is stored, in place of one of the generation ``before``."""
    number, cause, metric = generation.number, generation.cause, ""
    start = f"checkpoint {generation.restore_from}" if generation.restore_from else "the initial state"
    if before is None or before.number == 0:
        what, text = "start", f"generation {number}: starting from {start}"
    elif before.number == number:
        if before.phase is generation.phase:
            return []
        what, text = "runs", f"generation {number} runs, with {len(generation.members)} processes"
    elif generation.phase is Phase.FAILED:
        what, text = "failed", f"generation {number}: the topology has FAILED: {cause}; {CURE}"
    else:
        what, text, metric = "begun", f"generation {number}: restoring from {start}: {cause}", "__restores"
    detail = {"generation": number, "what": what, "checkpoint": generation.restore_from, "cause": str(cause)}
    return [Note(text, metric), Happened(RESTORE, what, text, json.dumps(detail))]


def checkpoint_begun(number: int) -> Happened:
    """The store has given its number out."""
    detail = json.dumps({"checkpoint": number, "what": "begun"})
    return Happened(CHECKPOINT, "begun", f"checkpoint {number} begun", detail)


def checkpoint_failed(number: int, why: str, duration_ms: float) -> Happened:
    """It is over, and is none."""
    detail = {"checkpoint": number, "what": "failed", "ms": round(duration_ms), "cause": why}
    text = f"checkpoint {number} failed after {duration_ms / 1000:.2f} s: {why}"
    return Happened(CHECKPOINT, "failed", text, json.dumps(detail))


def checkpoint_complete(found: CheckpointSummary) -> Happened:
    """It is the last complete one."""
    detail = {
        "checkpoint": found.number, "what": "complete", "bytes": found.bytes, "ms": round(found.duration_ms),
        "quiet_ms": round(found.bubble_ms), "last_aligned": found.last_aligned,
    }  # fmt: skip
    text = f"checkpoint {found.number} complete: {found.bytes:,} bytes in {found.duration_ms / 1000:.2f} s"
    return Happened(CHECKPOINT, "complete", text, json.dumps(detail))
