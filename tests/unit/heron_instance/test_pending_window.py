"""When a spout at its maximum may emit again: for a batch at once, for less after a flush interval."""

from __future__ import annotations

import pytest

from heron_instance.core.pending import REOPEN_ROWS, REPORT_FULL_MS, PendingWindow


def shut_at_100(max_pending: int = 20) -> PendingWindow:
    """A window that was open, and has been full since 100 ms. Its patience is 5 ms."""
    window = PendingWindow(max_pending, 5.0)
    assert window.describe_wait(10.0 * REPORT_FULL_MS) == ""
    assert not window.is_shut(max_pending - 1, 99.0)
    assert window.is_shut(max_pending, 100.0)
    return window


@pytest.mark.parametrize(("maximum", "batch"), [(20, 5), (23, 5), (3, 1), (1_000_000, REOPEN_ROWS)])
def test_a_shut_window_opens_for_a_quarter_or_a_batch_and_not_for_less(maximum: int, batch: int) -> None:
    window = shut_at_100(maximum)
    if batch > 1:
        assert window.is_shut(maximum - batch + 1, 104.9)
    assert not window.is_shut(maximum - batch, 104.9)
    assert not window.is_shut(maximum - 1, 104.9)  # it is open now, to the last place


def test_after_a_flush_interval_it_opens_for_one_but_never_where_there_is_no_room() -> None:
    window = shut_at_100()
    assert window.is_shut(20, 103.0)  # still full: the interval counts from when it shut first
    assert window.next_opening_ms(19) == 105.0
    assert window.next_opening_ms(20) is None
    assert window.is_shut(20, 500.0)
    assert not window.is_shut(19, 500.0)
    assert window.next_opening_ms(19) is None


def test_it_opens_at_the_moment_it_has_named() -> None:
    window = shut_at_100()
    opens = window.next_opening_ms(19)
    assert opens is not None
    assert not window.is_shut(19, opens)  # a spout that wakes then would otherwise wake in vain


def test_who_waits_for_long_says_for_what() -> None:
    window = shut_at_100()
    assert window.describe_wait(99.0 + REPORT_FULL_MS) == ""
    assert window.describe_wait(100.0 + REPORT_FULL_MS).startswith("waiting for acks for 2 s: 20 tuples are in flight")
    assert window.describe_wait(100.0 + 600_000).startswith("waiting for acks for 600 s")
    assert window.is_shut(19, 101.0)
    assert window.describe_wait(100.0 + REPORT_FULL_MS) == ""  # there is room: it gathers, and waits for nobody
