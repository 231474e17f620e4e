"""``python -m heron_runtime.warm MODULE IMPORT…``: process that is started before its arguments are known.

It imports the modules that MODULE will need, then waits for one line of JSON on its standard input: ``{arguments,
folder, output}``. It then runs as ``python -m MODULE arguments…`` in that folder, with its output in that file and
without input. It exits at end of file, which means that it is not needed. ``heron_runtime.spawn`` is the other end.

Garbage collection is off during the imports. Later collections skip the imported objects, since they all stay alive.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import sys

MOST_BYTES = 1 << 20


def _order() -> bytes:
    """Read the line of JSON. Return b"" at end of file."""
    read = b""
    while not read.endswith(b"\n"):
        more = os.read(0, MOST_BYTES)
        if not more:
            return b""
        read += more
    return read


def main() -> None:
    """Import the modules, wait for the line of JSON, and run the requested module."""
    _, module, *imports = sys.argv
    gc.disable()
    for name in imports:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()
    line = _order()
    if not line:
        return
    order = json.loads(line)
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, place in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, place)
    for descriptor in (nothing, output):
        os.close(descriptor)
    os.chdir(order["folder"])
    sys.argv[1:] = order["arguments"]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
