"""Routes for administrators to create, list and revoke tokens: ``/api/v1/tokens``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field

from heron_apiserver.access import CallerRole, Permission
from heron_apiserver.responses import documented_errors
from heron_apiserver.routing import AuthorizedRoute, api_server_of, requires
from heron_apiserver.tokens import expiry_after
from heron_control.web.tokens import Token

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
LONGEST_SECONDS = 10 * 366 * 86_400
router = APIRouter(
    prefix="/api/v1", tags=["tokens"], route_class=AuthorizedRoute, dependencies=[requires(Permission.TOKENS)]
)
NameInPath = Annotated[str, Path(description="the token's name", pattern=NAME)]


class TokenRow(BaseModel):
    """Properties of a token, without its text."""

    name: str
    scope: str
    expires_at: str | None = Field(description="ISO 8601; null: no expiry")
    state: Literal["good", "expired"]


class NewToken(BaseModel):
    """Token to create."""

    name: str = Field(pattern=NAME, description="name of the token, used in the audit log")
    scope: Literal["read", "submit", "admin"]
    seconds: int | None = Field(None, ge=60, le=LONGEST_SECONDS, description="lifetime; null: no expiry")


class DrawnToken(TokenRow):
    """Created token with its text."""

    token: str = Field(description="text of the token, returned only once")


@router.get("/tokens", response_model=list[TokenRow], summary="List tokens", responses=documented_errors(401))
def tokens(request: Request) -> Any:
    """Return all tokens by name. The server does not know their texts."""
    return [token_row(token) for token in api_server_of(request).tokens.list_all()]


@router.post(
    "/tokens",
    response_model=DrawnToken,
    status_code=201,
    summary="Create a token",
    responses=documented_errors(401, 409, 507),
)
def create_token(request: Request, new_token: NewToken) -> Any:
    """Create a token, which is valid immediately."""
    request.state.token = new_token.name
    book = api_server_of(request).tokens
    text = book.create(new_token.name, CallerRole(new_token.scope), expiry_after(new_token.seconds))
    [made] = [token for token in book.list_all() if token.name == new_token.name]
    return DrawnToken(**token_row(made).model_dump(), token=text)


@router.delete(
    "/tokens/{name}", response_model=TokenRow, summary="Revoke a token", responses=documented_errors(401, 404, 409, 507)
)
def revoke_token(request: Request, name: NameInPath) -> Any:
    """Revoke a token immediately. The last admin token without expiry cannot be revoked."""
    request.state.token = name
    book = api_server_of(request).tokens
    rows = {token.name: token_row(token) for token in book.list_all()}
    book.revoke(name)
    return rows[name]


def iso_time(seconds: float | None) -> str | None:
    """Return a time in ISO 8601, or None."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def token_row(token: Token) -> TokenRow:
    """Return the list entry of a token."""
    expired = token.expired(datetime.now(UTC).timestamp())
    return TokenRow(
        name=token.name, scope=token.scope, expires_at=iso_time(token.expires), state="expired" if expired else "good"
    )  # fmt: skip
