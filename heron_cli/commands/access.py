"""``heron login``, ``logout`` and ``token``: access to a cluster with an API server."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from heron_cli.clusters import HOME_CLUSTERS, SPARK
from heron_cli.console import Format, print_json, print_message, print_table
from heron_cli.home import Home, SavedLogin, read_credentials, write_credentials
from heron_cli.options import OutputOption, VerboseOption, parse_duration
from heron_control.web.names import is_loopback
from heron_runtime.failures import NotAllowed, NotFound, UsageError, did_you_mean, listing
from heron_runtime.model.ids import is_safe_name
from heron_runtime.model.masking import mask

MAX_TOKEN = 4096
WHERE_TOKENS_ARE = (
    "The first admin token is in the file admin-token in the home of the API server; `heron token create` creates more."
)
ClusterName = Annotated[
    str, typer.Argument(metavar="CLUSTER", help="Name of the cluster in other commands, for example docker.")
]


def login(
    cluster: ClusterName,
    api: Annotated[
        str, typer.Option("--api", metavar="URL", help="Address of the API server, for example http://127.0.0.1:9000.")
    ],
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", metavar="FILE", help="File with the token. Default: prompt, or read standard input."
        ),
    ] = None,
    verbose: VerboseOption = False,
) -> None:
    """Log in to the API server of a cluster. The token is verified and stored in credentials.json.

    Example: heron login docker --api http://127.0.0.1:9000
    """
    # Imported here, since httpx is slow to import.
    from heron_cli.remote_cluster import RemoteCluster

    if cluster in (*HOME_CLUSTERS, SPARK) or not is_safe_name(cluster):
        raise UsageError(
            f"invalid name {cluster!r} for a cluster with an API server",
            f"Use letters, digits, '_', '-' and '.', and not {listing((*HOME_CLUSTERS, SPARK))}.",
        )
    url = parse_server_url(api)
    home = Home.of_user()
    logins = read_credentials(home)  # a damaged file is reported before the user types a token
    server = RemoteCluster(cluster, SavedLogin(url, cluster, ""))
    server_name = server.version().cluster
    token = read_token(token_file, cluster, url)
    entry = SavedLogin(url, server_name, token)
    role = read_role(entry, cluster)
    write_credentials(home, {**logins, cluster: entry})
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        print_message(f"warning: the token is sent to {parts.hostname} unencrypted; use a proxy with TLS", "yellow")
    scope = f", scope {role}" if role in ("read", "submit") else ""
    print_message(f"logged in to {cluster} at {url}{scope}", "green")


def logout(cluster: ClusterName, verbose: VerboseOption = False) -> None:
    """Remove the stored token of a cluster.

    Example: heron logout docker
    """
    home = Home.of_user()
    logins = read_credentials(home)
    if cluster not in logins:
        raise NotFound(f"you are not logged in to {cluster!r}{did_you_mean(cluster, logins)}")
    write_credentials(home, {name: entry for name, entry in logins.items() if name != cluster})
    print_message(f"logged out of {cluster}", "green")


def parse_server_url(text: str) -> str:
    """Return the URL of a server without a slash at its end. Raises UsageError."""
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid or parts.username or parts.password or parts.query or parts.fragment or not text.isprintable():
        raise UsageError(f"invalid address {mask(text)!r} of an API server", "Write it as http://127.0.0.1:9000.")
    return text.rstrip("/")


def read_role(entry: SavedLogin, cluster: str) -> str:
    """Return the role that the token grants. Raises NotAllowed, Unavailable."""
    from heron_cli.api_client import ApiClient

    with ApiClient(entry, cluster) as client:
        try:
            return str(client.json("GET", "/api/v1/whoami")["role"])
        except NotAllowed as error:
            error.cure = error.cure if "expired" in error.message else WHERE_TOKENS_ARE
            raise


def read_token(file: Path | None, cluster: str, url: str) -> str:
    """Read the token from a file, from a pipe or from the terminal. Raises UsageError, OSError."""
    if file is not None:
        with file.open(encoding="utf-8", errors="replace") as opened:
            text = opened.read(MAX_TOKEN)
    elif sys.stdin is not None and sys.stdin.isatty():
        text = typer.prompt(f"Token of {cluster} at {url}", hide_input=True, err=True)
    else:
        text = sys.stdin.read(MAX_TOKEN) if sys.stdin is not None else ""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            "the token is empty or contains invalid characters", "Use --token-file FILE, type the token, or pipe it in."
        )
    return token


AdminCluster = Annotated[
    str, typer.Argument(metavar="CLUSTER", help="Cluster that you are logged in to with scope admin.")
]
TokenName = Annotated[
    str, typer.Argument(metavar="NAME", help="Owner of the token, for example ci. The audit file contains it.")
]


class TokenScope(StrEnum):
    """Permissions of a token."""

    READ = "read"
    SUBMIT = "submit"
    ADMIN = "admin"


def create_token(
    cluster: AdminCluster,
    name: TokenName,
    scope: Annotated[
        TokenScope, typer.Option("--scope", help="read; submit: read, submit and change topologies; admin: everything.")
    ],
    expires: Annotated[
        str,
        typer.Option(
            "--expires", metavar="TIME", help="Lifetime, for example 30d, 12h or 90m. Default: until it is revoked."
        ),
    ] = "",
    verbose: VerboseOption = False,
) -> None:
    """Create a token and print it once. The server stores only its SHA-256.

    Example: heron token create docker ci --scope submit --expires 30d
    """
    body = {"name": name, "scope": str(scope), "seconds": parse_duration(expires)}
    created = _request(cluster, "POST", "/api/v1/tokens", json=body)
    until = f" until {created['expires_at']}" if created["expires_at"] else ""
    print_message(f"token {name} is valid{until}; use it with heron login {cluster} --api URL", "green")
    sys.stdout.write(created["token"] + "\n")


def list_tokens(cluster: AdminCluster, output: OutputOption = Format.TABLE, verbose: VerboseOption = False) -> None:
    """List the tokens of a cluster with scope and expiry.

    Example: heron token list docker
    """
    rows = _request(cluster, "GET", "/api/v1/tokens")
    if output is Format.JSON:
        print_json(rows)
        return
    columns = ("name", "scope", "state", "expires_at")
    print_table(columns, [[row[column] or "" for column in columns] for row in rows])


def revoke_token(cluster: AdminCluster, name: TokenName, verbose: VerboseOption = False) -> None:
    """Revoke a token.

    Example: heron token revoke docker ci
    """
    _request(cluster, "DELETE", f"/api/v1/tokens/{name}")
    print_message(f"token {name} is revoked", "green")


def _request(cluster: str, method: str, path: str, **more: Any) -> Any:
    # Imported here, since httpx is slow to import.
    from heron_cli.api_client import ApiClient

    logins = read_credentials(Home.of_user())
    if cluster not in logins:
        raise NotFound(
            f"you are not logged in to {cluster!r}{did_you_mean(cluster, logins)}",
            f"Run heron login {cluster} --api URL.",
        )
    with ApiClient(logins[cluster], cluster) as client:
        return client.json(method, path, **more)
