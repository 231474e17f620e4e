"""``credentials.json`` below the home (0600): the clusters behind api servers that this user has logged in to.

``{"docker": {"api": "http://127.0.0.1:9000", "cluster": "docker", "token": "…"}}``: under the name the user gave, where
the api server is, what it calls its cluster itself, and the token that ``heron login`` was given.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from heron_cli.home import Home
from heron_runtime.failures import Failure, NotAllowed
from heron_runtime.files import replace_file

FILE = "credentials.json"


@dataclass(frozen=True, slots=True)
class Login:
    """How to reach one cluster. Its repr does not show the token."""

    api: str
    cluster: str
    token: str = field(repr=False)


def read_credentials(home: Home) -> dict[str, Login]:
    """Name of the cluster to login. Raises NotAllowed for a file that others may read, Failure for a damaged one."""
    path = home.root / FILE
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read()
    except FileNotFoundError:
        return {}
    if stat.S_IMODE(mode) & 0o077:
        cure = f"chmod 0600 {path}, and have new tokens made."
        raise NotAllowed(f"{path}: other users may read the tokens in it", cure)
    try:
        return {name: Login(**entry) for name, entry in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise Failure(f"{path} is not understood", "Remove it and use `heron login` again.") from error


def write_credentials(home: Home, logins: Mapping[str, Login]) -> None:
    """Replace the file at once (0600); without logins there is no file. Raises OSError."""
    home.prepare()
    path = home.root / FILE
    if not logins:
        path.unlink(missing_ok=True)
        return
    entries = {name: asdict(login) for name, login in sorted(logins.items())}
    replace_file(path, json.dumps(entries, indent=1) + "\n", 0o600)
