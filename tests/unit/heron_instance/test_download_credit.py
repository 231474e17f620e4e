"""Input credit of a task: limits across connections, compared with a running sum."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from heron_instance.core.flow_control import DownloadCredit
from heron_runtime.wire.control import Credit

STEPS = st.lists(st.tuples(st.sampled_from(("hello", "receive", "take", "offer", "weigh")), st.integers(0, 90)))


@given(STEPS, st.booleans())
@example([("weigh", 0), ("hello", 0)], False)  # a zero credit must also be sent to each stream manager
def test_limits_belong_to_the_connection_and_are_sent_once(steps: list[tuple[str, int]], tell: bool) -> None:
    """``told`` is the last state sent on this connection, None before the first message."""
    download, told = DownloadCredit(), None
    received = before = taken = total = 0
    weight = 7
    download.offer(total, weight)
    for what, size in [*steps, ("offer", 100)]:
        match what:
            case "hello":
                download.begin_stream()
                before, told = received, None
            case "receive":
                download.receive(size)
                received += size
            case "take":
                taken = min(received, taken + size)
                download.taken_weight = taken
            case "weigh":
                weight = size
                download.offer(total, weight)
            case _:
                total += size
                download.offer(total, weight)
        now = Credit(max(0, total - before), weight, max(0, taken - before))
        if tell:
            assert download.report_taken() == (told is not None and told.taken_bytes != now.taken_bytes)
        due = told is None or now.limit_bytes > told.limit_bytes or now.tuple_weight != told.tuple_weight
        due = due or (tell and told is not None and told.taken_bytes != now.taken_bytes)
        assert download.take_update() == (now if due else None)
        assert download.take_update() is None, "once"
        told = now if due else told
