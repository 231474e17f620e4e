"""State that is kept: what a component may define for checkpoints, and sinks with effect exactly once.

With ``topology.reliability.mode`` EFFECTIVELY_ONCE a topology takes a checkpoint each
``topology.stateful.checkpoint.interval.secs``, and after a fault every task goes on from the last complete one. Two
mappings are kept for each task: ``self.keyed``, one entry for each key of a fields grouping, and ``self.state``, the
task's own. In the other modes both are there as well, in memory only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from heronry.api.component import BasicBolt

SHOWN_AGAIN = "user.streamlet.shown.again"  # a component's streamlet sinks that say so of themselves; for who submits


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint as a task sees it. ``name`` is unique in the topology's life, and safe as a file name; it tells who
    wrote it: generation, number, task and process."""

    number: int
    generation: int
    name: str


class StatefulComponent:
    """Heron's names for what is called around checkpoints. Derive from it beside ``Spout`` or ``Bolt``, or just define
    those that are needed: they are called wherever they are defined.

    Two methods more, of which there is no default: ``merge_state(states)`` is called after ``init_state`` on the first
    task of a component of which ``heron update`` has taken tasks away, with the ``self.state`` of each of those that
    had one. ``union_state(states)``, in its place, is called on every task that goes on from a checkpoint, with the
    ``self.state`` that each task of the component had, in order of tasks, as copies. A component with neither cannot be
    given fewer tasks while they hold such state."""

    def init_state(self, state: dict[Any, Any]) -> None:
        """Called before ``initialize`` with the task's own state, empty at first; it is ``self.state``, too."""

    def pre_save(self, checkpoint_id: str) -> None:
        """A checkpoint is taken when this returns: put into ``self.state`` what must be in it."""

    def post_save(self, checkpoint_id: str) -> None:
        """The checkpoint is complete."""

    def pre_restore(self, checkpoint_id: str) -> None:
        """Called before ``init_state`` where the task goes on from a checkpoint."""


class TwoPhaseSink(BasicBolt):
    """A sink whose output becomes visible with checkpoints, each record once.

    ``prepare`` makes what was written since the last checkpoint safe and invisible, under a token; ``commit`` makes it
    visible, once the checkpoint is complete; ``abort`` throws it away. Commit and abort may come again for a token
    they were called for before, and then must do nothing. Sources: two-phase commit; Carbone et al. 2017, section 4.3.
    """

    commits_alone: ClassVar[bool] = False  # also where no checkpoints are taken; else it is refused there

    def prepare(self, checkpoint: Checkpoint) -> str | None:
        """Make what was written safe and return its token, which begins with ``checkpoint.name``; None if nothing was
        written."""
        raise NotImplementedError(f"{type(self).__name__} has no prepare(self, checkpoint)")

    def commit(self, checkpoint: int, token: str) -> None:
        """Make it visible; ``checkpoint`` is the one it was prepared for."""
        raise NotImplementedError(f"{type(self).__name__} has no commit(self, checkpoint, token)")

    def abort(self, token: str) -> None:
        """Throw it away."""
        raise NotImplementedError(f"{type(self).__name__} has no abort(self, token)")

    def prepared(self) -> Iterable[str]:
        """The tokens of this component of this topology that the outside system holds, prepared and not committed."""
        raise NotImplementedError(f"{type(self).__name__} has no prepared(self)")
