"""How a bolt begins and ends: what is not processed any more, and who is closed."""

from __future__ import annotations

from typing import Any

from bolt_alone import Alone

from heron_instance.core.bolt_executor import BoltExecutor
from heronry.api.component import BasicBolt
from heronry.api.hooks import TaskHook


def test_with_hooks_nothing_is_processed_behind_what_ends_the_task() -> None:
    class Fatal(BasicBolt):
        def initialize(self, config: dict[str, Any], context: Any) -> None:
            context.add_task_hook(TaskHook())
            self.seen: list[int] = []

        def process(self, tup: Any) -> None:
            self.seen.append(tup["n"])
            if tup["n"] == 2:
                raise RuntimeError("no more")

    alone = Alone(Fatal, {"topology.on.exception": "restart"})
    alone.feed(alone.frame([(1,), (2,), (3,)]))
    for _ in range(5):
        alone.step()
    assert alone.executor.failed is not None
    assert alone.bolt.seen == [1, 2]


def test_what_has_not_begun_is_not_closed() -> None:
    class Closes(BasicBolt):
        closed = 0

        def process(self, tup: Any) -> None:
            """Nothing."""

        def close(self) -> None:
            self.closed += 1

    alone = Alone(Closes)
    alone.executor.task.close()
    assert alone.bolt.closed == 1
    setup = alone.world.setup_of(2)
    unborn = BoltExecutor(setup)
    unborn.task.close()
    assert setup.component.closed == 0
