"""Cores load neither protobuf nor network modules, not even indirectly: an import contract sees direct imports only."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

from tests.checks.test_source_rules import ROOT

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
CORES = next(contract["source_modules"] for contract in CONTRACTS if contract["id"] == "pure-cores")
LOOK = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(getattr(package, "__path__", ()), package.__name__ + "."):
    importlib.import_module(module.name)
print(*sorted({"google.protobuf", "grpc", "kazoo", "asyncio", "pyspark"} & sys.modules.keys()))
"""
#: Cores that read sketches, which are protobuf messages of the DDSketch library.
READS_SKETCHES = {"heron_tracker.core", "metrics_manager.collection", "topology_master.core"}
#: Modules whose package loads more than they do.
IN_OTHER_PACKAGES = {
    "data_pipeline.core",
    "heron_control.schedulers.container_spec",
    "heron_control.schedulers.slurm_plan",
    "metrics_manager.sinks.history_rows",
}


@pytest.mark.parametrize("core", sorted(set(CORES) - IN_OTHER_PACKAGES))
def test_core_loads_no_protobuf_and_no_network(core: str) -> None:
    done = subprocess.run([sys.executable, "-c", LOOK, core], capture_output=True, text=True, cwd=ROOT, check=True)
    allowed = {"google.protobuf"} if core in READS_SKETCHES else set()
    assert set(done.stdout.split()) <= allowed
