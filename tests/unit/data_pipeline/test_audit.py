"""Audit records in the history: each line as often as it was written, for any number of reads."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="needs pyarrow: deploy/spark-setup")

from data_pipeline.shell import audit
from heron_control.schedulers.log_files import RotatingFile
from heron_runtime.model.history import AUDIT_FOLDER, SUFFIX

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("written"), st.integers(1, 3)),
        st.tuples(st.just("taken"), st.sampled_from([0, 1, 99])),
    ),
    max_size=25,
)
BEGIN = [("written", 3), ("written", 3), ("taken", 99), *[("written", 3)] * 4, ("taken", 1), ("taken", 99)]
BEGIN = [("written", 3), ("written", 3), ("taken", 99), *[("written", 3)] * 4, ("taken", 1), ("taken", 99)]
BEGIN = [("written", 3), ("written", 3), ("taken", 99), *[("written", 3)] * 4, ("taken", 1), ("taken", 99)]


def lines_of(root: Path) -> Counter[str]:
    return sum((audit.bag(path) for path in (root / AUDIT_FOLDER).rglob(f"*{SUFFIX}")), Counter[str]())


@settings(report_multiple_bugs=False, max_examples=25, deadline=None)
@given(STEPS)
def test_each_line_is_stored_as_often_as_written(steps: list[tuple[str, int]]) -> None:
    """``written``: a line several times in a millisecond; ``taken``: a job that dies after some days.

    A file holds four lines, and three files are kept.
    """
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        record = RotatingFile(root / "audit.jsonl", 4 * 120, 2)
        (root / "audit.jsonl").touch()
        number, expected, written = 0, Counter[str](), Counter[str]()
        for step, many in [*BEGIN, *steps, ("taken", 99)]:
            if step == "written":
                number += 1
                at = f"2026-11-{10 + number // 4:02d}T00:00:{number:02d}.000+00:00"
                line = json.dumps({"at": at, "what": "kill", "who": "admin", "from": "", "result": 200}).ljust(119)
                for _ in range(many):
                    record.write(f"{line}\n".encode())
                    written[line] += 1
                    written[line] += 1
                    written[line] += 1
                continue
            kept = Counter(line for file in sorted(root.glob("audit.jsonl*")) for line in file.read_text().splitlines())
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(audit, "replace_file", _dying(audit.replace_file, many))
                try:
                    audit.take(root, root / "audit.jsonl")
                except KeyboardInterrupt:
                    continue
            expected |= kept
            found = lines_of(root)
            assert found >= expected, "nothing that a job has seen is missing"
            assert found <= written, "and nothing is there more often than it was written"
        record.close()


def _dying(right: object, days: int) -> object:
    left = [days]

    def write(*arguments: object) -> None:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        right(*arguments)  # type: ignore[operator]  # reason: it is replace_file

    return write
