"""Cores load nothing of the world, by whatever way: an import contract sees direct imports only."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest
from test_tree import ROOT

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
CORES = next(contract["source_modules"] for contract in CONTRACTS if contract["id"] == "pure-cores")
LOOK = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(getattr(package, "__path__", ()), package.__name__ + "."):
    importlib.import_module(module.name)
print(*sorted({"google.protobuf", "grpc", "kazoo", "asyncio", "pyspark"} & sys.modules.keys()))
"""
READS_SKETCHES = {
    "heron_tracker.core",
    "metrics_manager.core",
    "topology_master.core",
}  # which are protobuf messages of the DDSketch library
ALLOWED = {"data_pipeline.core", "heron_control.schedulers.docker_plan", "heron_control.schedulers.slurm_plan"}


@pytest.mark.parametrize("core", sorted(set(CORES) - ALLOWED))
def test_core_loads_no_protobuf_and_no_network(core: str) -> None:
    done = subprocess.run([sys.executable, "-c", LOOK, core], capture_output=True, text=True, cwd=ROOT, check=True)
    allowed = {"google.protobuf"} if core in READS_SKETCHES else set()
    assert set(done.stdout.split()) <= allowed
