"""Checkpoints of components, and sinks with exactly-once output.

With ``topology.reliability.mode`` EFFECTIVELY_ONCE a topology takes a checkpoint every
``topology.stateful.checkpoint.interval.secs``. After a failure every task resumes from the last complete checkpoint. A
checkpoint stores two mappings of each task: ``self.keyed``, with one entry for each key of a fields grouping, and
``self.state`` of the task itself. In the other modes both exist in memory only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from heronry.api.component import BasicBolt

SHOWN_AGAIN = "user.streamlet.shown.again"  # configuration key: streamlet sinks of a component that may repeat output


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint of one task. ``name`` is unique in the life of the topology and safe in file names.

    The name consists of generation, number, task and process.
    """

    number: int
    generation: int
    name: str


class StatefulComponent:
    """Callbacks around checkpoints, with the names of Heron.

    Derive from it in addition to ``Spout`` or ``Bolt``, or define single methods: every defined method is called.

    Two more methods are optional. ``merge_state(states)`` is called after ``init_state`` on the first task of a
    component after ``heron update`` has removed tasks, with the ``self.state`` of each removed task. Instead of it,
    ``union_state(states)`` is called on every task that resumes from a checkpoint, with copies of the ``self.state`` of
    all tasks of the component, in order. Tasks that hold such state cannot be removed from a component with neither.
    """

    def init_state(self, state: dict[Any, Any]) -> None:
        """Receive ``self.state``, which is empty at first. Called before ``initialize``."""

    def pre_save(self, checkpoint_id: str) -> None:
        """Update ``self.state`` for the checkpoint that is taken when this returns."""

    def post_save(self, checkpoint_id: str) -> None:
        """React to a complete checkpoint."""

    def pre_restore(self, checkpoint_id: str) -> None:
        """Prepare to resume from a checkpoint. Called before ``init_state``."""


class TwoPhaseSink(BasicBolt):
    """Sink whose output becomes visible with checkpoints, exactly once.

    ``prepare`` stores the output since the last checkpoint durably but invisibly, under a token. ``commit`` makes it
    visible when the checkpoint is complete; ``abort`` discards it. Both must be idempotent, since they may be repeated.
    Sources: two-phase commit; Carbone et al. 2017, section 4.3.
    """

    commits_alone: ClassVar[bool] = False  # works without checkpoints; else it is refused there

    def prepare(self, checkpoint: Checkpoint) -> str | None:
        """Store the output durably.

        Returns:
            The token, which begins with ``checkpoint.name``; None without output.
        """
        raise NotImplementedError(f"{type(self).__name__} has no prepare(self, checkpoint)")

    def commit(self, checkpoint: int, token: str) -> None:
        """Make the output of a token visible; ``checkpoint`` is the one it was prepared for. Idempotent."""
        raise NotImplementedError(f"{type(self).__name__} has no commit(self, checkpoint, token)")

    def abort(self, token: str) -> None:
        """Discard the output of a token. Idempotent."""
        raise NotImplementedError(f"{type(self).__name__} has no abort(self, token)")

    def prepared(self) -> Iterable[str]:
        """Return the tokens of this component that the external system holds, prepared and not committed."""
        raise NotImplementedError(f"{type(self).__name__} has no prepared(self)")
