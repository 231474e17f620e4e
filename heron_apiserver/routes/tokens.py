"""``/api/v1/tokens``: make tokens, list them, revoke them, all while the server serves. For administrators."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field

from heron_apiserver.access import CallerRole, Permission
from heron_apiserver.responses import failures
from heron_apiserver.routing import AuthorizedRoute, api_server_of, requires
from heron_apiserver.tokens import expiry
from heron_control.web.tokens import Token

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
LONGEST_SECONDS = 10 * 366 * 86_400
router = APIRouter(
    prefix="/api/v1", tags=["tokens"], route_class=AuthorizedRoute, dependencies=[requires(Permission.TOKENS)]
)
NameInPath = Annotated[str, Path(description="the token's name", pattern=NAME)]


class TokenRow(BaseModel):
    """A token, without itself."""

    name: str
    scope: str
    expires_at: str | None = Field(description="ISO 8601; null: it holds until it is revoked")
    state: Literal["good", "expired"]


class NewToken(BaseModel):
    """What to draw."""

    name: str = Field(pattern=NAME, description="who it is for; the audit file names it")
    scope: Literal["read", "submit", "admin"]
    seconds: int | None = Field(None, ge=60, le=LONGEST_SECONDS, description="how long it holds; null: until revoked")


class DrawnToken(TokenRow):
    """The answer to who made one."""

    token: str = Field(description="told this once; the server keeps its SHA-256 only")


@router.get("/tokens", response_model=list[TokenRow], summary="List the tokens", responses=failures(401))
def tokens(request: Request) -> Any:
    """By name, without the tokens themselves, which nobody knows any more."""
    return [row(token) for token in api_server_of(request).tokens.all()]


@router.post(
    "/tokens", response_model=DrawnToken, status_code=201, summary="Make a token", responses=failures(401, 409, 507)
)
def create_token(request: Request, asked: NewToken) -> Any:
    """It holds from now on."""
    request.state.token = asked.name
    book = api_server_of(request).tokens
    text = book.create(asked.name, CallerRole(asked.scope), expiry(asked.seconds))
    [made] = [token for token in book.all() if token.name == asked.name]
    return DrawnToken(**row(made).model_dump(), token=text)


@router.delete(
    "/tokens/{name}", response_model=TokenRow, summary="Revoke a token", responses=failures(401, 404, 409, 507)
)
def revoke_token(request: Request, name: NameInPath) -> Any:
    """It is refused from now on. The last admin token that never expires stays."""
    request.state.token = name
    book = api_server_of(request).tokens
    rows = {token.name: row(token) for token in book.all()}
    book.revoke(name)
    return rows[name]


def iso(seconds: float | None) -> str | None:
    """A time for people."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def row(token: Token) -> TokenRow:
    """As it is listed."""
    expired = token.expired(datetime.now(UTC).timestamp())
    return TokenRow(
        name=token.name, scope=token.scope, expires_at=iso(token.expires), state="expired" if expired else "good"
    )  # fmt: skip
