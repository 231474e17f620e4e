"""``heron token``: who may use a cluster behind an api server. Make tokens, list them, revoke them."""

from __future__ import annotations

import re
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from heron_cli.console import Format, print_json, print_table, say
from heron_cli.credentials import read_credentials
from heron_cli.home import Home
from heron_cli.options import Output, Verbose
from heron_runtime.failures import NotFound, UsageError, did_you_mean

CLUSTER = Annotated[str, typer.Argument(metavar="CLUSTER", help="Cluster that you are logged in to with scope admin.")]
NAME = Annotated[
    str, typer.Argument(metavar="NAME", help="Owner of the token, for example ci. The audit file contains it.")
]
_UNITS = {"m": 60, "h": 3_600, "d": 86_400}


class Scope(StrEnum):
    """What a token is for."""

    READ = "read"
    SUBMIT = "submit"
    ADMIN = "admin"


def create(
    cluster: CLUSTER,
    name: NAME,
    scope: Annotated[
        Scope, typer.Option("--scope", help="read; submit: read, submit and change topologies; admin: everything.")
    ],
    expires: Annotated[
        str,
        typer.Option(
            "--expires", metavar="TIME", help="Lifetime, for example 30d, 12h or 90m. Default: until it is revoked."
        ),
    ] = "",
    verbose: Verbose = False,
) -> None:
    """Create a token and print it once. The server stores only its SHA-256."""
    asked = {"name": name, "scope": str(scope), "seconds": seconds_of(expires)}
    made = _ask(cluster, "POST", "/api/v1/tokens", json=asked)
    until = f" until {made['expires_at']}" if made["expires_at"] else ""
    say(f"token {name} holds{until}; give it to: heron login {cluster} --api URL", "green")
    sys.stdout.write(made["token"] + "\n")


def list_tokens(cluster: CLUSTER, output: Output = Format.TABLE, verbose: Verbose = False) -> None:
    """List the tokens of a cluster with scope and expiry."""
    rows = _ask(cluster, "GET", "/api/v1/tokens")
    if output is Format.JSON:
        print_json(rows)
        return
    columns = ("name", "scope", "state", "expires_at")
    print_table(columns, [[row[column] or "" for column in columns] for row in rows])


def revoke(cluster: CLUSTER, name: NAME, verbose: Verbose = False) -> None:
    """Revoke a token."""
    _ask(cluster, "DELETE", f"/api/v1/tokens/{name}")
    say(f"token {name} is revoked", "green")


COMMANDS = (("create", create), ("list", list_tokens), ("revoke", revoke))


def seconds_of(text: str) -> int | None:
    """``30d``, ``12h`` or ``90m`` as seconds; None for "". Raises UsageError."""
    if not text:
        return None
    found = re.fullmatch(r"([1-9]\d{0,6})([mhd])", text)
    if not found:
        raise UsageError(f"{text!r} is no time for a token", "Write it as 30d, 12h or 90m.")
    return int(found[1]) * _UNITS[found[2]]


def _ask(cluster: str, method: str, path: str, **more: Any) -> Any:
    # Here, since no command of the local cluster needs httpx, which takes a moment.
    from heron_cli.api_client import ApiClient

    known = read_credentials(Home.of_user())
    if cluster not in known:
        raise NotFound(
            f"you are not logged in to {cluster!r}{did_you_mean(cluster, known)}", f"heron login {cluster} --api URL"
        )
    with ApiClient(known[cluster], cluster) as client:
        return client.json(method, path, **more)
