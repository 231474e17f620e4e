"""Tokens of a running API server and ``heron token``: creation, scopes, expiry and revocation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from heron_apiserver.access import CallerRole
from heron_apiserver.tokens import TokenBook
from tests.support.api_server_process import ApiProcess, Heron, api_server

RESTART = "/api/v1/topologies/box/ads/prod/nobody/restart"


@pytest.fixture(scope="module")
def ended() -> list[str]:
    return []


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, ended: list[str]) -> Iterator[ApiProcess]:
    home = tmp_path_factory.mktemp("tokens") / "api"
    home.mkdir(mode=0o700)
    ended.append(TokenBook(home).create("ended", CallerRole.ADMIN, 1.0))  # expired in 1970
    with api_server(home, "--cluster", "box") as server:
        yield server


def test_token_is_created_limited_to_its_scope_and_revoked_without_a_restart(api: ApiProcess, tmp_path: Path) -> None:
    heron = Heron(tmp_path / "home")
    heron.run("login", "box", "--api", api.url, "--token-file", str(api.home / "admin-token"))
    token = heron.run("token", "create", "box", "submit", "--scope", "submit", "--expires", "30d").stdout.strip()
    assert api.request("GET", "/api/v1/whoami", token=token).json()["role"] == "submit"
    assert api.request("POST", RESTART, token=token).status_code == 404  # permitted, but the topology does not exist
    refused = api.request("GET", "/api/v1/tokens", token=token)
    assert (refused.status_code, "scope admin" in refused.json()["cure"]) == (403, True)
    assert api.request("POST", RESTART, token=api.reader).status_code == 403
    rows = {row["name"]: row for row in heron.data("token", "list", "box")}
    assert {name: row["scope"] for name, row in rows.items()} == {
        "admin": "admin", "read": "read", "submit": "submit", "ended": "admin"
    }  # fmt: skip
    assert (rows["ended"]["state"], rows["admin"]["expires_at"]) == ("expired", None)
    assert token not in (api.home / "tokens.json").read_text()
    heron.run("token", "revoke", "box", "submit")
    assert api.request("GET", "/api/v1/whoami", token=token).status_code == 401
    whats = [(line["what"], line["who"], line["result"], line.get("token")) for line in api.audit()]
    assert ("create_token", "admin", 201, "submit") in whats
    assert ("tokens", "submit", 403, None) in whats
    assert ("revoke_token", "admin", 200, "submit") in whats
    assert token not in (api.home / "audit.jsonl").read_text()


def test_expired_token_is_reported_as_expired(api: ApiProcess, ended: list[str]) -> None:
    answer = api.request("GET", "/api/v1/whoami", token=ended[0])
    assert (answer.status_code, "'ended' has expired" in answer.json()["message"]) == (401, True)


def test_last_admin_token_cannot_be_revoked(api: ApiProcess) -> None:
    answer = api.request("DELETE", "/api/v1/tokens/admin")
    assert (answer.status_code, "last admin token" in answer.json()["message"]) == (409, True)
    assert api.request("DELETE", "/api/v1/tokens/nobody").status_code == 404
    assert api.request("POST", "/api/v1/tokens", json={"name": "x", "scope": "topology"}).status_code == 422
