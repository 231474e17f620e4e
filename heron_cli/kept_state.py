"""A topology's generation and checkpoints in words, for ``heron status``."""

from __future__ import annotations

from datetime import datetime

from heron_cli.console import age, size
from heron_control.inspection.kept_state import KeptState, LastCheckpoint, UnderWay, names
from heron_runtime.model.plan import Phase


def lines(found: KeptState, now: float) -> list[tuple[str, str]]:
    """Text and style of each. ``now`` in seconds since 1970."""
    shown = [_phase(found)]
    if found.storage_fault and found.phase is Phase.RUNNING:
        shown.append((found.trouble, "bold red"))
    if not found.told:
        shown.append(("state: the topology master does not answer; this is what its last plan says", "yellow"))
        return shown
    shown.append((f"last complete checkpoint: {_last(found.last, now)}", ""))
    if found.under_way is not None:
        shown.append((_under_way(found.under_way), ""))
    if found.cancelled:
        shown.append((f"checkpoints cancelled: {found.cancelled}, the last one: {found.cancelled_why}", "yellow"))
    return shown


def _phase(found: KeptState) -> tuple[str, str]:
    if found.phase is Phase.FAILED:
        return f"state: {found.trouble}", "bold red"
    if found.phase is Phase.RESTORING:
        return f"state: {found.trouble}", "yellow"
    text = f"state: generation {found.generation} runs"
    if found.phase_seconds is not None:
        text += f" for {age(found.phase_seconds)}"
    if found.restores:
        text += f"; restores: {found.restores}, the last after {found.cause}"
    elif found.cause:
        text += f"; restored after {found.cause}"
    return text, ""


def _last(last: LastCheckpoint | None, now: float) -> str:
    if last is None:
        return "none yet"
    if last.completed_at is None or last.duration_ms is None or last.bubble_ms is None:
        return f"{last.number}, {size(last.bytes)}, of a master before this one"
    ago = age(now - datetime.fromisoformat(last.completed_at).timestamp())
    text = f"{last.number}, {ago} ago, in {last.duration_ms:.0f} ms, bubble {last.bubble_ms:.0f} ms, {size(last.bytes)}"
    return f"{text}, waited most for {last.last_aligned}" if last.last_aligned else text


def _under_way(found: UnderWay) -> str:
    text = f"checkpoint {found.number} is under way for {found.seconds:.1f} s"
    if not found.waits_for:
        return f"{text}: it is made the last complete one"
    return f"{text}: waits for {names(found.waits_for)} to {'write' if found.writing else 'align'}"
