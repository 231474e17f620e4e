"""Retention of checkpoint files: kept checkpoints are complete, and all other files are removed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heron_control.inspection.checkpoints import complete_ones
from heron_runtime.model.checkpoints import ALL_GROUPS, Manifest, StatePart, initial_manifest, next_manifest
from heron_runtime.model.ids import KEY_GROUPS
from heron_runtime.model.plan import NO_PLAN
from topology_master.core.checkpoints import part_generation, select_kept, select_removable

TABLES = {"count": (1,) * KEY_GROUPS}


class History:
    """Checkpoints of one keyed task. Every third one is abandoned, and each seventh ends a generation."""

    def __init__(self, length: int) -> None:
        self.manifests: dict[int, Manifest] = {}
        self.parts: list[str] = []
        self.generation = 1
        self.last = initial_manifest("id")
        for number in range(1, length + 1):
            self.take(number)

    def take(self, number: int) -> None:
        part = StatePart("count", 1, 9, self.generation, number, self.last.turn + 1, 1, "s", ALL_GROUPS)
        self.parts.append(part.name)
        manifest = next_manifest(self.last, [part], NO_PLAN, TABLES)
        if number % 3:
            self.last = self.manifests[number] = manifest
        elif number % 2:
            self.manifests[number] = manifest  # written, but never completed
        if number % 7 == 0:
            self.generation += 1

    @property
    def complete(self) -> list[int]:
        return [n for n in self.manifests if n % 3]


@given(st.integers(0, 60), st.integers(1, 5))
def test_kept_checkpoints_are_whole_and_abandoned_files_are_removed(length: int, keep: int) -> None:
    history = History(length)
    complete = history.last.checkpoint
    old = select_removable(history.manifests, history.parts, complete, history.generation, keep)
    left = {number: m for number, m in history.manifests.items() if number not in old.manifests}
    files = set(history.parts) - set(old.parts)
    assert [n for n in left if n in history.complete] == history.complete[-keep:]
    for number in history.complete[-keep:]:
        assert history.manifests[number].files <= files
    needed = {name for manifest in left.values() for name in manifest.files}
    assert all(part_generation(name) == history.generation for name in files - needed)
    assert select_removable(left, sorted(files), complete, history.generation, keep) == ((), ()), "once is enough"


@given(st.integers(1, 40), st.integers(0, 20), st.integers(1, 4))
def test_outdated_master_removes_nothing_that_is_still_needed(then: int, later: int, keep: int) -> None:
    earlier, history = History(then), History(then + later)
    # The outdated master lists the files that exist now.
    old = select_removable(history.manifests, history.parts, earlier.last.checkpoint, earlier.generation, keep)
    for number in history.complete[-keep:]:
        assert number not in old.manifests
        assert not history.manifests[number].files & set(old.parts)


@given(st.integers(4, 30), st.integers(1, 3), st.integers(0, 20), st.integers(1, 4))
def test_discarded_checkpoints_never_count_as_complete(then: int, steps: int, later: int, keep: int) -> None:
    """A restore to an older checkpoint starts a new history that reuses the later turns."""
    history = History(then)
    now = history.complete
    target = now[max(0, len(now) - 1 - steps)]
    history.last, history.generation = history.manifests[target], history.generation + 1
    for number in range(then + 1, then + later + 1):
        history.take(number)
    counts = [n for n in history.complete if n <= target or n > then]
    found = select_kept(history.manifests, history.last.checkpoint, keep)
    assert sorted(found) == counts[-keep:]
    turns = {n: manifest.turn for n, manifest in history.manifests.items()}
    assert sorted(complete_ones(turns, history.last.checkpoint)) == counts


def test_unreadable_kept_manifest_blocks_the_removal_of_parts() -> None:
    history = History(20)
    last = history.last.checkpoint
    old = select_removable({**history.manifests, last: None}, history.parts, last, history.generation, 2)
    assert old.manifests
    assert old.parts == ()


def test_unfinished_files_go_with_their_generation_and_foreign_files_stay() -> None:
    parts = [".2-7-1-9.part.0a1b2c3d.part", ".3-8-1-9.part.0a1b2c3d.part", "2-7-2-9.part", "notes.txt", "x-1-2-3.part"]
    assert select_removable({}, parts, 0, 3, 3) == ((), (".2-7-1-9.part.0a1b2c3d.part", "2-7-2-9.part"))
    assert select_kept({4: None, 2: None, 9: None, 7: None}, complete=7, keep=2) == {4, 7}


def test_discarded_checkpoints_do_not_hide_older_ones() -> None:
    """The last complete one is 4. Checkpoints 2 and 3 have later turns and were discarded by a restore."""

    def follows(base: Manifest, number: int, generation: int = 1) -> Manifest:
        part = StatePart("count", 1, 9, generation, number, base.turn + 1, 1, "s", ALL_GROUPS)
        return next_manifest(base, [part], NO_PLAN, TABLES)

    one = follows(initial_manifest("id"), 1)
    two = follows(one, 2)
    assert select_kept({2: two, 3: follows(two, 3), 4: follows(initial_manifest("id"), 4, 2)}, 4, keep=5) == {4}
