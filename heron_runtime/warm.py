"""``python -m heron_runtime.warm MODULE IMPORT…``: a process that is started before it is known what for.

It imports what the module will need, then waits for one line of JSON on its standard input: ``{arguments, folder,
output}``. From then on it is ``python -m MODULE arguments…`` in that folder, with its output in that file and no input.
End of file means that it is not needed. ``heron_runtime.spawn`` has the other end.

While it imports there is no garbage collection, and what was imported is left out of every later one: all of it stays.
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
    """The line, or b"" at the end of file."""
    read = b""
    while not read.endswith(b"\n"):
        more = os.read(0, MOST_BYTES)
        if not more:
            return b""
        read += more
    return read


def main() -> None:
    """Import, wait, and be what is asked for."""
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
