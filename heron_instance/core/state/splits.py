"""The positions of a spout: what of its source each task reads, and how far it is.

A *split* is a part of a source that one task reads by itself, a file, a partition, a shard (Flink's FLIP-27). A spout
lists its splits by name, with a number if they have one, and keeps for each it owns a position in ``self.keyed``. Who
owns a split follows from its number (of a split without number, from a hash of its name) and the tasks of the
component; so splits find their owner again after a restore, after a rescale, and when the list grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any

from heron_runtime.model.keys import group_of

Listed = str | tuple[str, int]  # a split, or a split with its number
Listing = Callable[[], Iterable[Listed]]


class SplitNotOwned(LookupError):
    """A split that another task of the component reads."""


class Positions(MutableMapping[str, Any]):
    """What ``self.keyed`` is in a spout: split to position, for the splits this task owns.

    ``listing`` is the spout's ``splits``; ``tasks``: those of its component. Raises SplitNotOwned when a position of
    another task's split is written.
    """

    def __init__(self, task: int, tasks: Sequence[int], listing: Listing) -> None:
        self._task = task
        self._tasks = tuple(sorted(tasks))
        self._listing = listing
        self._listed: dict[str, int | None] = {}
        self._values: dict[str, Any] = {}  # with those of other tasks, as restored: who owns them is not known yet

    def owned(self) -> list[str]:
        """The splits this task reads now, in the order in which they are listed. Asks the spout for its list."""
        self._listed = dict(_named(listed) for listed in self._listing())
        return [split for split in self._listed if self.owns(split)]

    def owns(self, split: str) -> bool:
        """Whether this task reads it."""
        number = self._listed.get(split)
        place = group_of(split) if number is None else number
        return self._tasks[place % len(self._tasks)] == self._task

    def __getitem__(self, split: str) -> Any:
        return self._values[split]

    def __setitem__(self, split: str, position: Any) -> None:
        if not self.owns(split):
            raise SplitNotOwned(f"split {split!r} is read by another task of this spout: read self.owned_splits() only")
        self._values[split] = position

    def __delitem__(self, split: str) -> None:
        del self._values[split]

    def __iter__(self) -> Iterator[str]:
        return iter([split for split in self._values if self.owns(split)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def taken(self) -> list[tuple[str, Any]]:
        """What a checkpoint holds: positions of splits that this task owns and that are still listed."""
        return [(split, self._values[split]) for split in self.owned() if split in self._values]

    def load(self, positions: Iterable[tuple[str, Any]]) -> None:
        """Positions of any task of the component."""
        self._values.update(positions)


def _named(listed: Listed) -> tuple[str, int | None]:
    return (listed, None) if isinstance(listed, str) else (str(listed[0]), int(listed[1]))
