"""Warm processes, started before their task is known: they take it over, or end."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

from heron_cli import __main__ as entry
from heron_runtime import spawn

SHOW = """
import json, os, sys
print(json.dumps([sys.argv[1:], os.getcwd(), "sqlite3" in sys.modules, sys.stdin.read()]))
"""


def run(folder: Path, *arguments: str) -> list[object]:
    process = spawn.start_session("shown", arguments, str(folder), folder / "out")
    assert process.wait(60) == 0
    return list(json.loads((folder / "out").read_text().splitlines()[-1]))


def test_warm_process_is_used_once(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "shown.py").write_text(SHOW)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    spawn.warm_up("shown", ["sqlite3"])
    warm = spawn._warm["shown"]
    expected = [["a", "--b"], str(tmp_path)]
    assert run(tmp_path, "a", "--b") == [*expected, True, ""]
    assert warm.returncode == 0
    assert run(tmp_path, "a", "--b") == [*expected, False, ""], "the second one is started anew"


def test_dead_warm_process_is_replaced(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "shown.py").write_text(SHOW)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    spawn.warm_up("shown", ["no_such_module"])
    spawn._warm["shown"].wait(60)
    assert run(tmp_path, "x")[0] == ["x"]


def test_unused_warm_process_ends_with_its_parent() -> None:
    code = "from heron_runtime.spawn import _warm, warm_up; warm_up('x', ['json']); print(_warm['x'].pid)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    try:
        descriptor = os.pidfd_open(int(done.stdout))
    except ProcessLookupError:
        return  # already gone
    assert select.select([descriptor], [], [], 60)[0], "it lives on"
    os.close(descriptor)


def test_only_a_local_submit_starts_warm_processes(monkeypatch) -> None:
    begun: list[str] = []
    monkeypatch.setattr(spawn, "warm_up", lambda module, *_: begun.append(module))
    monkeypatch.setattr(entry, "warm_up", lambda module, *_: begun.append(module))
    define, scheduler = "heron_control.packaging.define", "heron_scheduler"
    for line, expected in (
        ("submit local flow.py", [define, scheduler]),
        ("submit --name x local/ada/prod flow.py", [define, scheduler]),
        ("submit --dry-run local flow.py", [define]),
        ("submit docker flow.py", []),
        ("kill local flow", []),
        ("", []),
    ):
        begun.clear()
        entry.warm_up_processes(line.split())
        assert begun == expected, line
