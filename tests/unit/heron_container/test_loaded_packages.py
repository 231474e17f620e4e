"""Distributions that a topology may not replace in forked processes."""

from __future__ import annotations

import subprocess
import sys

from heron_container.shell.process_launcher import LOADED

LOOK = """
import importlib.metadata, sys
from heron_container.zygote import IMPORTED_FOR_INSTANCES, preload
preload(IMPORTED_FOR_INSTANCES)
ours = importlib.metadata.packages_distributions()
loaded = {name.partition(".")[0] for name, module in sys.modules.items() if getattr(module, "__spec__", None)}
print(*{name.lower().replace("_", "-") for top in loaded for name in ours.get(top, ())})
"""
OF_THE_INTERPRETER = {"heronry", "setuptools"}  # our own, and what a .pth file of setuptools adds to every process


def test_loaded_distributions_match_those_of_the_zygote() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True, timeout=120)
    assert set(done.stdout.split()) - OF_THE_INTERPRETER == set(LOADED)
