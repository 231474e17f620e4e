"""The tracker's command line, one for ``python -m heron_tracker`` and ``heron tracker``.

FastAPI takes a moment to import, so that is left to the moment in which the tracker runs: no other command needs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from heron_runtime.failures import UsageError
from heron_runtime.model.ids import is_safe_name


def tracker(
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="0 picks a free one.")] = 8888,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", metavar="NAME=STORE_URL", help="Follow this cluster; may be repeated."),
    ] = None,
    store_credential: Annotated[
        list[str] | None,
        typer.Option(
            "--store-credential", metavar="NAME=FILE",
            help="A file of mode 0400 with the credential of that cluster's store; a reader's is enough.",
        ),
    ] = None,
    home: Annotated[
        Path | None, typer.Option("--home", help="Where topologies have their folders, and the local cluster is.")
    ] = None,
    history: Annotated[
        Path | None, typer.Option("--history", help="Where histories are kept. Default: history/ of the home.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Answer to this host name, too; may be repeated."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="Answer only to whoever shows a token in it.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show more, and log requests.")] = False,
) -> None:  # fmt: skip
    """Serve the REST interface and the web page until Ctrl-C."""
    from heron_tracker.server import TrackerOptions, serve

    clusters = _pairs(cluster or (), "no cluster", "Write NAME=STORE_URL, as local=files:///home/me/heronry/state.")
    credentials = _pairs(store_credential or (), "no credential", "Write NAME=FILE, as docker=/run/secrets/reader.")
    serve(
        TrackerOptions(host, port, clusters, credentials, home, tuple(allow_host or ()), verbose, token_file, history)
    )


def _pairs(texts: Iterable[str], fault: str, cure: str) -> tuple[tuple[str, str], ...]:
    """NAME=VALUE of each. Raises UsageError."""
    found = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not value or not is_safe_name(name):
            raise UsageError(f"{text!r} is {fault}", cure)
        found.append((name, value))
    return tuple(found)
