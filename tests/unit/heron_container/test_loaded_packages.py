"""Which distributions a topology may not bring in another version to processes that are forked."""

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
OF_THE_INTERPRETER = {"heronry", "setuptools"}  # ours; what a .pth file of setuptools puts into every process


def test_the_zygote_loads_what_is_compared_with_the_topologys_own() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True, timeout=120)
    assert set(done.stdout.split()) - OF_THE_INTERPRETER == set(LOADED)
