"""Pending window: when a spout at its maximum may emit again."""

from __future__ import annotations

import pytest

from heron_instance.core.pending import REOPEN_ROWS, REPORT_FULL_MS, PendingWindow


def shut_at_100(max_pending: int = 20) -> PendingWindow:
    """Return a window that was open and has been full since 100 ms; it waits 5 ms."""
    window = PendingWindow(max_pending, 5.0)
    assert window.describe_wait(10.0 * REPORT_FULL_MS) == ""
    assert not window.is_shut(max_pending - 1, 99.0)
    assert window.is_shut(max_pending, 100.0)
    return window


@pytest.mark.parametrize(("maximum", "batch"), [(20, 5), (23, 5), (3, 1), (1_000_000, REOPEN_ROWS)])
def test_shut_window_opens_for_a_quarter_or_a_batch(maximum: int, batch: int) -> None:
    window = shut_at_100(maximum)
    if batch > 1:
        assert window.is_shut(maximum - batch + 1, 104.9)
    assert not window.is_shut(maximum - batch, 104.9)
    assert not window.is_shut(maximum - 1, 104.9)  # it is open now, up to the maximum


def test_shut_window_opens_for_one_row_after_the_flush_interval() -> None:
    window = shut_at_100()
    assert window.is_shut(20, 103.0)  # still full: the interval starts when the window first shut
    assert window.next_opening_ms(19) == 105.0
    assert window.next_opening_ms(20) is None
    assert window.is_shut(20, 500.0)
    assert not window.is_shut(19, 500.0)
    assert window.next_opening_ms(19) is None


def test_window_opens_at_the_announced_time() -> None:
    window = shut_at_100()
    opens = window.next_opening_ms(19)
    assert opens is not None
    assert not window.is_shut(19, opens)  # otherwise the spout would wake in vain


def test_long_wait_is_described() -> None:
    window = shut_at_100()
    assert window.describe_wait(99.0 + REPORT_FULL_MS) == ""
    assert window.describe_wait(100.0 + REPORT_FULL_MS).startswith("waiting for acks for 2 s: 20 tuples are in flight")
    assert window.describe_wait(100.0 + 600_000).startswith("waiting for acks for 600 s")
    assert window.is_shut(19, 101.0)
    assert window.describe_wait(100.0 + REPORT_FULL_MS) == ""  # there is room, so the window collects a batch
