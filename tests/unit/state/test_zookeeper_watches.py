"""Thread of the ZooKeeper watches: failed registrations are retried, and order is kept."""

from __future__ import annotations

import threading

from heron_runtime.state.store import SessionState, StoreUnavailable
from heron_runtime.state.zookeeper import Trigger, WatchThread

BOUND_SECONDS = 60.0


def test_watch_registration_is_retried() -> None:
    tries: list[str] = []

    def arm(path: str, trigger: Trigger) -> None:
        tries.append(path)
        if len(tries) < 3:
            raise StoreUnavailable("not yet")

    table, called = WatchThread(arm), threading.Event()
    table.start()
    try:
        table.watch("/a", lambda _: called.set())
        assert called.wait(BOUND_SECONDS)
        assert tries[:3] == ["/a"] * 3
    finally:
        table.stop()


def test_jobs_and_states_keep_their_order_despite_an_exception() -> None:
    table, said, over = WatchThread(lambda path, trigger: None), list[object](), threading.Event()
    table.listen(said.append)
    table.start()
    try:
        table.tell(SessionState.SUSPENDED)
        table.call(lambda: 1 // 0)
        table.call(lambda: said.append("job"))
        table.tell(SessionState.CONNECTED)
        table.call(over.set)
        assert over.wait(BOUND_SECONDS)
    finally:
        table.stop()
    assert said == [SessionState.SUSPENDED, "job", SessionState.CONNECTED]
