"""``heron tracker``: REST over everything that runs, and the web page, in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heronry.cli.errors import Unavailable, UsageError
from heronry.cli.home import Home
from heronry.cli.options import Verbose
from heronry.model.ids import is_safe_name


def tracker(
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="0 picks a free one.")] = 8888,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", metavar="NAME=STORE_URL", help="Follow this cluster; may be repeated."),
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
    from heron_tracker.shell.server import Options, StartError, serve

    clusters = []
    for text in cluster or ():
        name, separator, url = text.partition("=")
        if not separator or not url or not is_safe_name(name):
            raise UsageError(f"{text!r} is no cluster", "Write NAME=STORE_URL, as local=files:///home/me/heronry/state.")
        clusters.append((name, url))
    if not clusters and home is None:
        Home.of_user().prepare()
    try:
        serve(Options(host, port, tuple(clusters), home, tuple(allow_host or ()), verbose=verbose))
    except StartError as error:
        raise Unavailable(str(error)) from error
