"""Command output: user text on one line without control characters, and complete numbers."""

from __future__ import annotations

import io
import json
import sys

import pytest

from heron_cli.commands.status import print_status
from heron_cli.console import print_json, print_table
from heron_control.inspection.topology_status import Answers, topology_status
from heron_runtime.model.records import TopologyRecord
from heron_runtime.wire.container import ContainerStatus
from heron_runtime.wire.metrics import ExceptionReport
from tests.support.stub_processes import all_processes, definition, execution, packing

FORGED = "bad\nfailing: everything\r\x1b[2J\x9b31m\u202eend"


def test_exception_cannot_add_lines_or_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    record = TopologyRecord(definition(), packing(), None, execution("/home"), None, None, ())
    report = ExceptionReport("count", "container_2_count_3", "ValueError", FORGED, f"Traceback\n{FORGED}", 7, 1.0, 2.0)
    containers = {2: ContainerStatus(2, "h", 1, tuple(all_processes(2)))}
    print_status(topology_status(record, Answers(None, containers, None, (report,)), 5000.0), 5000.0, verbose=True)
    printed = capsys.readouterr().out
    assert "bad\\nfailing: everything" in printed
    assert not any(line.startswith("failing: everything") for line in printed.splitlines())
    assert all(c.isprintable() or c == "\n" for c in printed)


def test_late_records_are_a_line_of_the_status(capsys: pytest.CaptureFixture[str]) -> None:
    record = TopologyRecord(definition(), packing(), None, execution("/home"), None, None, ())
    counts = {"sums": {"late-count": 2.0}, "counts": {"late-count": 10.0}}
    print_status(topology_status(record, Answers(None, {}, None, (), counts=counts), 5000.0), 5000.0)
    (line,) = [text for text in capsys.readouterr().out.splitlines() if text.startswith("late: ")]
    assert line.startswith("late: 12 records came after their windows had closed (counts 10, sums 2; ")


def test_json_has_no_control_characters_and_keeps_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"message": FORGED + "\U000e0001 ü 漢 \U0001f600"}
    print_json(value)
    printed = capsys.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in printed)
    assert "ü 漢" in printed
    assert json.loads(printed) == value


class Terminal(io.StringIO):
    """Terminal that records its output."""

    def isatty(self) -> bool:
        """Return True."""
        return True


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_numbers_are_complete_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    numbers = [str(982_780_123_456 + n) for n in range(9)]
    print_table(["component", *"abcdefghi"], [["a-component-with-a-long-name", *numbers]], list("abcdefghi"))
    assert all(number in terminal.getvalue() for number in numbers)
