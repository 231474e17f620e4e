"""``heron login`` and ``heron logout``: which api server a cluster is behind, and the token for it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from heron_cli.address import OF_HOME, SPARK
from heron_cli.console import say
from heron_cli.credentials import Login, read_credentials, write_credentials
from heron_cli.home import Home
from heron_cli.options import Verbose
from heron_control.web.names import is_loopback
from heron_runtime.failures import NotAllowed, NotFound, UsageError, did_you_mean
from heron_runtime.model.ids import is_safe_name
from heron_runtime.model.masking import mask

MAX_TOKEN = 4096
TOKENS = (
    "The first admin token is in the file admin-token in the home of the api server; `heron token create` makes more."
)
CLUSTER = Annotated[
    str, typer.Argument(metavar="CLUSTER", help="Name of the cluster in other commands, for example docker.")
]


def login(
    cluster: CLUSTER,
    api: Annotated[
        str, typer.Option("--api", metavar="URL", help="Address of the API server, for example http://127.0.0.1:9000.")
    ],
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", metavar="FILE", help="File with the token. Default: prompt, or read standard input."
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Log in to the API server of a cluster. The token is verified and stored in credentials.json."""
    # Here, since no other command of the local cluster needs httpx, which takes a moment.
    from heron_cli.api_cluster import ApiCluster

    if cluster in (*OF_HOME, SPARK) or not is_safe_name(cluster):
        raise UsageError(f"{cluster!r} is no name for a cluster behind an api server", "Use another, as docker.")
    url = checked_url(api)
    home = Home.of_user()
    known = read_credentials(home)  # what is wrong with the file is told before anybody types a token
    server = ApiCluster(cluster, Login(url, cluster, ""))
    named = server.version().cluster
    token = read_token(token_file, cluster, url)
    mine = Login(url, named, token)
    role = who_am_i(mine, cluster)
    write_credentials(home, {**known, cluster: mine})
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        say(f"the token travels in clear to {parts.hostname}; better put a proxy with TLS before it", "yellow")
    can = {"read": ", to look only", "submit": ", to look and to submit"}.get(role, "")
    say(f"logged in to {cluster} at {url}{can}", "green")


def logout(cluster: CLUSTER, verbose: Verbose = False) -> None:
    """Remove the stored token of a cluster."""
    home = Home.of_user()
    known = read_credentials(home)
    if cluster not in known:
        raise NotFound(f"you are not logged in to {cluster!r}{did_you_mean(cluster, known)}")
    write_credentials(home, {name: entry for name, entry in known.items() if name != cluster})
    say(f"logged out of {cluster}", "green")


def checked_url(text: str) -> str:
    """``text`` without a slash at its end. Raises UsageError for what is no address of a server."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good or parts.username or parts.password or parts.query or parts.fragment or not text.isprintable():
        raise UsageError(f"{mask(text)!r} is not an address of an API server", "Write it as http://127.0.0.1:9000.")
    return text.rstrip("/")


def who_am_i(entry: Login, cluster: str) -> str:
    """The role that the token gives. Raises NotAllowed, Unavailable."""
    from heron_cli.api_client import ApiClient

    with ApiClient(entry, cluster) as client:
        try:
            return str(client.json("GET", "/api/v1/whoami")["role"])
        except NotAllowed as error:
            error.cure = error.cure if "expired" in error.message else TOKENS
            raise


def read_token(file: Path | None, cluster: str, url: str) -> str:
    """The token from a file, from a pipe, or typed in. Raises UsageError, OSError."""
    if file is not None:
        with file.open(encoding="utf-8", errors="replace") as opened:
            text = opened.read(MAX_TOKEN)
    elif sys.stdin is not None and sys.stdin.isatty():
        text = typer.prompt(f"Token of {cluster} at {url}", hide_input=True, err=True)
    else:
        text = sys.stdin.read(MAX_TOKEN) if sys.stdin is not None else ""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("there is no token", "Give it by --token-file FILE, type it in, or pipe it in.")
    return token
