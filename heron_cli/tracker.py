"""``heron tracker``: REST over everything that runs, and the web page, in the foreground."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from heron_cli.home import Home
from heron_cli.options import Verbose
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
        typer.Option("--store-credential", metavar="NAME=FILE", help="The credential of that cluster's store."),
    ] = None,
    home: Annotated[Path | None, typer.Option("--home", help="Where the local cluster is.")] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Answer to this host name, too; may be repeated."),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Serve the REST interface and the web page until Ctrl-C."""
    # Here, since no other command needs FastAPI, which takes a moment.
    from heron_tracker.shell.server import Options, serve

    clusters = _pairs(cluster or (), "no cluster", "Write NAME=STORE_URL, as local=files:///home/me/heronry/state.")
    credentials = _pairs(store_credential or (), "no credential", "Write NAME=FILE, as docker=/run/secrets/reader.")
    if not clusters and home is None:
        Home.of_user().prepare()
    serve(Options(host, port, clusters, credentials, home, tuple(allow_host or ()), verbose=verbose))


def _pairs(texts: Iterable[str], fault: str, cure: str) -> tuple[tuple[str, str], ...]:
    """NAME=VALUE of each. Raises UsageError."""
    found = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not value or not is_safe_name(name):
            raise UsageError(f"{text!r} is {fault}", cure)
        found.append((name, value))
    return tuple(found)
