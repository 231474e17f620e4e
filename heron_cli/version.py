"""``heron version``."""

from __future__ import annotations

import platform
from importlib.metadata import version as installed

from heron_cli.console import Format, print_json, print_table
from heron_cli.options import Output
from heronry.version import VERSION


def version(output: Output = Format.TABLE) -> None:
    """Show the versions of Heronry and of what it stands on."""
    found = {
        "heronry": VERSION,
        "python": platform.python_version(),
        "grpc": installed("grpcio"),
        "protobuf": installed("protobuf"),
    }
    if output is Format.JSON:
        print_json(found)
    else:
        print_table(("part", "version"), list(found.items()))
