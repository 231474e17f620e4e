"""Where checkpoints meet executors: what counts as sent and as taken, and that no batch spans a barrier."""

from __future__ import annotations

from typing import Any

from instance_world import SHUFFLE, Part
from kept_world import KeptWorld

from heron_runtime.wire.data import BARRIER, Frame
from heronry.api.component import Bolt, Spout


class Emits(Spout):
    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.n = 0

    def next_tuple(self) -> None:
        if self.n < 200:
            self.n += 1
            self.emit([self.n])


class Passes(Bolt):
    def process(self, tup: Any) -> None:
        self.emit(list(tup.values))


class Ends(Bolt):
    def process(self, tup: Any) -> None:
        pass


def ran() -> KeptWorld:
    """A spout, a bolt that passes on, one that ends it: tasks 1, 2 and 3, at rest."""
    parts = {
        "s": Part(Emits, 1, {"default": ["n"]}),
        "b": Part(Passes, 1, {"default": ["n"]}, [("s", "default", SHUFFLE)]),
        "e": Part(Ends, 1, {}, [("b", "default", SHUFFLE)]),
    }
    world = KeptWorld(parts)
    world.run()
    return world


def test_a_cut_counts_what_was_sent_and_what_was_taken_of_it() -> None:
    """What a barrier says was sent before it is what its receiver has taken, once all is at rest."""
    world = ran()
    for source, reader in ((1, 2), (2, 3)):
        frames = sum(len(flush.frames) for task, flush in world.flushes if task == source)
        assert frames > 0
        assert world.state_of(world.executors[source])._sent[reader] == frames
        assert world.state_of(world.executors[reader])._participant._frames[source] == frames


def test_no_batch_spans_a_barrier() -> None:
    gates = ran().executors[2].gates  # type: ignore[attr-defined]
    barrier, data = Frame(1, 0, 2, 0, 1, BARRIER, b""), Frame(1, 0, 2, 1, 1, 0, b"x")
    taken = dict(gates.stateful._participant._frames)
    assert not gates.lets_in(barrier, True)
    assert gates.lets_in(barrier, False)
    assert gates.stateful._participant._frames == taken, "a barrier is no data"
    assert gates.lets_in(data, True)
    assert gates.lets_in(data, False)
    assert gates.stateful._participant._frames == {1: taken[1] + 2}
