"""Command line of the tracker, shared by ``python -m heron_tracker`` and ``heron tracker``.

The server is imported only when it runs, because FastAPI takes long to import.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from heron_runtime.failures import UsageError
from heron_runtime.model.ids import is_safe_name


def tracker(
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port to listen on. 0: any free port.")] = 8888,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", metavar="NAME=STORE_URL", help="Cluster to follow. Default: local. Repeatable."),
    ] = None,
    store_credential: Annotated[
        list[str] | None,
        typer.Option(
            "--store-credential", metavar="NAME=FILE",
            help="File (mode 0400) with the credential to read the store of a cluster.",
        ),
    ] = None,
    home: Annotated[
        Path | None, typer.Option("--home", help="Home folder. Default: HERONRY_HOME.")
    ] = None,
    history: Annotated[
        Path | None, typer.Option("--history", help="Folder of the history. Default: history/ in the home folder.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Further host name to answer to. Repeatable."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="Require a token of this file (mode 0400).")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log requests.")] = False,
    connections_per_address: Annotated[
        int,
        typer.Option(
            "--connections-per-address", min=0, max=999_999, metavar="NUMBER",
            help="Connections of one client address at a time. 0: no limit.",
        ),
    ] = 256,
    unread_seconds: Annotated[
        float,
        typer.Option(
            "--unread-seconds", min=1, max=86_400, metavar="SECONDS",
            help="Disconnect a client that has read nothing for this time.",
        ),
    ] = 60.0,
) -> None:  # fmt: skip
    """Serve the REST interface and the web page until Ctrl-C.

    Example: heron tracker --port 8889
    """
    from heron_control.web.serving import ConnectionLimits
    from heron_tracker.server import TrackerOptions, serve

    clusters = _pairs(
        cluster or (), "not a cluster", "Write NAME=STORE_URL, such as local=files:///home/me/heronry/state."
    )
    credentials = _pairs(
        store_credential or (), "not a credential", "Write NAME=FILE, such as docker=/run/secrets/reader."
    )
    limits = ConnectionLimits(connections_per_address, unread_seconds)
    hosts = tuple(allow_host or ())
    serve(TrackerOptions(host, port, clusters, credentials, home, hosts, verbose, token_file, history, limits))


def _pairs(texts: Iterable[str], fault: str, cure: str) -> tuple[tuple[str, str], ...]:
    """Split NAME=VALUE texts. Raises UsageError."""
    pairs = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not value or not is_safe_name(name):
            raise UsageError(f"{text!r} is {fault}", cure)
        pairs.append((name, value))
    return tuple(pairs)
