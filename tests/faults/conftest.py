"""Fixtures of tests that start real processes and harm them; a run ends with the table of recovery times."""

from __future__ import annotations

from typing import Any

from tests.faults import fault_table


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table."""
    if fault_table.ROWS:
        terminalreporter.section("faults survived")
        for line in fault_table.table():
            terminalreporter.write_line(line)
