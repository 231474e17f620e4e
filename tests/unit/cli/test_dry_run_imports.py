"""Modules imported by ``heron submit --dry-run`` in its processes, and by commands that inspect topologies.

Imports dominate the cost of such commands. Times depend on the machine, so the tests count modules.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

TOPOLOGY = """
import sys
from pathlib import Path
from heronry import Bolt, Spout, Topology

class Words(Spout):
    outputs = ["word"]
    def next_tuple(self): pass

class Count(Bolt):
    def process(self, tup): pass

class WordCount(Topology):
    words = Words.spec()
    count = Count.spec(inputs=[words])

Path(sys.argv[1]).write_text("\\n".join(sys.modules))
"""
COMMAND = """
import atexit, sys
from pathlib import Path
place = sys.argv.pop(1)
atexit.register(lambda: Path(place).write_text("\\n".join(sys.modules)))
from heron_cli.__main__ import main
main()
"""
ASKS_AND_STARTS = (
    "grpc",
    "kazoo",
    "cryptography",
    "psutil",
    "httpx",
    "docker",
    "heron_runtime.state",
    "heron_runtime.net.identity",
)
STORES = ("google.protobuf", "heron_runtime.wire.generated", "heron_runtime.wire.codec")
UNPACKS = ("tarfile", "heron_control.packaging.archive", "heron_control.packaging.requirements")
FURTHER_ON = ("heron_control.submission", "heron_control.schedulers", "heron_control.inspection", "heron_cli.rollout")
OTHERS = (*ASKS_AND_STARTS, *STORES, *UNPACKS, *FURTHER_ON, "yaml", "platformdirs", "numpy")
OF_THE_COMMAND = (
    "secrets",
    "typer",
    "rich",
    "pydantic",
    "subprocess",
    "logging",
    "heron_cli",
    "heron_runtime.model.plan",
)
MOST_IN_COMMAND, MOST_IN_DEFINER = 60, 35  # modules of Heronry including packages; slightly above the current numbers


def dry_run(folder: Path) -> tuple[set[str], set[str]]:
    """Return the modules of the command and of the process that defines the topology."""
    (folder / "words.py").write_text(TOPOLOGY)
    line = ("submit", "local", "words.py", "WordCount", "--dry-run", "--", str(folder / "definer"))
    command_line = [sys.executable, "-c", COMMAND, str(folder / "command"), *line]
    environment = {**os.environ, "HERONRY_HOME": str(folder / "home")}
    subprocess.run(command_line, cwd=folder, env=environment, check=True, capture_output=True, timeout=120)
    command, definer = (set((folder / name).read_text().split("\n")) for name in ("command", "definer"))
    return command, definer


def found(modules: set[str], packages: Iterable[str]) -> list[str]:
    return sorted(name for name in packages if name in modules)


def of_heronry(modules: set[str]) -> list[str]:
    return sorted(name for name in modules if name.startswith(("heron_", "heronry")))


def test_dry_run_imports_only_what_it_needs_in_both_processes(tmp_path: Path) -> None:
    command, definer = dry_run(tmp_path)
    assert "heron_cli.commands.dry_run" in command
    assert "heron_control.packaging.topology_lookup" in definer
    assert not found(command, OTHERS)
    assert not found(definer, (*OTHERS, *OF_THE_COMMAND))
    assert len(of_heronry(command)) <= MOST_IN_COMMAND, of_heronry(command)
    assert len(of_heronry(definer)) <= MOST_IN_DEFINER, of_heronry(definer)


def test_inspection_command_imports_no_streamlets(tmp_path: Path) -> None:
    line = ("list", "local")
    command_line = [sys.executable, "-c", COMMAND, str(tmp_path / "command"), *line]
    environment = {**os.environ, "HERONRY_HOME": str(tmp_path / "home")}
    subprocess.run(command_line, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=120)
    modules = set((tmp_path / "command").read_text().split("\n"))
    assert "heron_control.inspection.inspector" in modules
    assert not found(modules, ("heronry.streamlet", "data_pipeline", "docker", "numpy"))
