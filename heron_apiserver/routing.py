"""Routes of the API server: permission checks, error responses and the audit of changes.

A path declares the permission it requires (``requires``) or is listed in ``OPEN_PATHS``. A path that does neither
cannot be created. ``AuthorizedRoute`` checks the token before it reads anything else, so the body of an unknown
client is never parsed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, TypeVar, cast

from fastapi import APIRouter, Depends, Path, Request
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.responses import Response

from heron_apiserver.access import (
    PERMISSIONS,
    SCOPES,
    Caller,
    CallerRole,
    Permission,
    parse_bearer_token,
    parse_proof_header,
)
from heron_apiserver.api_server import ApiServer
from heron_apiserver.responses import documented_errors, error_response_for
from heron_control.web.names import UNDONE_HEADER
from heron_runtime.failures import Failure, NotAllowed, NotFound, Unavailable
from heron_runtime.model.ids import is_safe_name
from heron_runtime.model.records import TopologyRecord

log = logging.getLogger(__name__)
_SCHEME = Depends(HTTPBearer(auto_error=False, description="a token of a scope that the path accepts"))
TOPOLOGY_HEADER, NONCE_HEADER = "heronry-topology", "heronry-nonce"
MAX_NAME = 128
OPEN_PATHS = ("/api/v1/version", "/healthz", "/readyz", "/leader", "/metrics", "/docs")  # require no token
Handler = TypeVar("Handler", bound=Callable[..., Any])


class WrongToken(Failure):
    """The request has no token, an unknown token or an expired one."""


class ProofRequired(Failure):
    """A container must prove that it belongs to its topology; the response carries a nonce."""

    def __init__(self, nonce: str) -> None:
        super().__init__("prove that the container belongs to this topology", "See docs/how-to/apiserver.md.")
        self.nonce = nonce


class TooManyWrongTokens(Failure):
    """The address sent too many wrong tokens."""


class NotReady(Unavailable):
    """The server refuses changes; nothing was done. ``soon`` means that the wait is short."""

    def __init__(self, trouble: str, *, soon: bool) -> None:
        super().__init__(f"the API server is not ready: {trouble}", "Try again in a few seconds.")
        self.soon = soon


def api_server_of(request: Request) -> ApiServer:
    """Return the API server of a request."""
    return cast(ApiServer, request.app.state.api)


def client_address(request: Request) -> str:
    """Return the address of the connection, regardless of headers."""
    return request.client.host if request.client else ""


class PermissionRequirement:
    """Dependency that declares the permission of a path, for the documentation. ``AuthorizedRoute`` enforces it."""

    def __init__(self, permission: Permission) -> None:
        self.permission = permission

    async def __call__(self, _: Any = _SCHEME) -> None:
        """Do nothing: the caller was authorized before."""


def requires(permission: Permission) -> Any:
    """Return the dependency that declares the permission of a path."""
    return Depends(PermissionRequirement(permission))


def authorize(request: Request, permission: Permission) -> None:
    """Authenticate the caller from the headers and check its permission.

    Raises:
        WrongToken: the token is missing, unknown or expired.
        ProofRequired: a container must send a proof.
        TooManyWrongTokens: the address is throttled.
        NotAllowed: the caller lacks the permission.
        NotReady: the server refuses changes.
    """
    api = api_server_of(request)
    request.state.caller = None
    headers = request.headers.getlist("authorization")
    given = headers[0] if len(headers) == 1 else ""
    token, topology_id = parse_bearer_token(given), request.headers.get(TOPOLOGY_HEADER, "")
    caller = _caller(request, token, topology_id, given)
    expired = caller is not None and caller.expires is not None and time.time() >= caller.expires
    if caller is not None and expired:
        request.state.caller = caller
        if not api.throttle.wrong(client_address(request), time.monotonic()):
            raise TooManyWrongTokens("too many wrong tokens from this address", "Wait a few seconds.")
        raise WrongToken(
            f"the token {caller.token!r} has expired", "Ask an administrator for a new one (heron token create)."
        )
    without_proof = not headers or (parse_proof_header(given)[0] and not _has_own_nonce(request, given))
    if caller is None and permission is Permission.CODE and topology_id and without_proof:
        raise ProofRequired(api.download_nonces.create(int(time.time()), topology_id, client_address(request)))
    if caller is None:
        if not api.throttle.wrong(client_address(request), time.monotonic()):
            raise TooManyWrongTokens("too many wrong tokens from this address", "Wait a few seconds.")
        raise WrongToken(
            "the token is wrong" if token else "the Authorization header is missing or has an invalid form",
            f"`heron login {api.topologies.config.cluster} --api URL` stores the right one.",
        )
    request.state.caller = caller
    if not caller.has_permission(permission):
        wanted = ", ".join(scope for scope in SCOPES if permission in PERMISSIONS[scope])
        raise NotAllowed(
            f"a token of scope {caller.role} does not permit to {permission}", f"Use a token of scope {wanted}."
        )
    if permission is Permission.CHANGE and not api.maintenance.ready:
        raise NotReady(api.maintenance.trouble, soon=api.maintenance.starting)


def _caller(request: Request, token: str, topology_id: str, given: str) -> Caller | None:
    api = api_server_of(request)
    token_entry = api.tokens.find(token)
    if token_entry is not None:
        return Caller(CallerRole(token_entry.scope), token=token_entry.name, expires=token_entry.expires)
    if _has_own_nonce(request, given):
        nonce, proof = parse_proof_header(given)
        digest = request.path_params.get("digest", "")
        return (
            Caller(CallerRole.TOPOLOGY, topology_id)
            if api.topologies.verify_download_proof(topology_id, digest, nonce, proof)
            else None
        )
    return None


def _has_own_nonce(request: Request, given: str) -> bool:
    """Return True if the header has a nonce that this server issued to this caller.

    Behind a load balancer a nonce of another server may arrive; the caller then receives a new one.
    """
    topology_id = request.headers.get(TOPOLOGY_HEADER, "")
    return api_server_of(request).download_nonces.accepts(
        parse_proof_header(given)[0], int(time.time()), topology_id, client_address(request)
    )


class AuthorizedRoute(APIRoute):
    """Route that authorizes its callers, formats errors and audits changes and refusals."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        declared = [
            d.dependency.permission
            for d in options.get("dependencies") or ()
            if isinstance(d.dependency, PermissionRequirement)
        ]
        if len(declared) != (path not in OPEN_PATHS):
            raise ValueError(
                f"{path} declares {len(declared)} permissions; it needs one, or must be listed in OPEN_PATHS"
            )
        self.permission: Permission | None = declared[0] if declared else None
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the handler of FastAPI."""
        original: Callable[[Request], Awaitable[Response]] = super().get_route_handler()
        permission = self.permission

        async def handle(request: Request) -> Response:
            message = ""
            try:
                if permission is not None:
                    authorize(request, permission)
                response = await original(request)
            except ProofRequired as error:  # the first request of every container; not audited
                response = error_response_for(error, 401)
                response.headers[NONCE_HEADER] = error.nonce
                return response
            except (WrongToken, TooManyWrongTokens) as error:
                response = error_response_for(error, 401 if isinstance(error, WrongToken) else 429)
                message = error.message
            except Exception as error:
                response = error_response_for(error)
                if isinstance(error, NotReady) and error.soon:
                    response.headers[UNDONE_HEADER] = "starting"
                message = str(error) or type(error).__name__
            self._audit(request, response.status_code, message)
            return response

        return handle

    def _audit(self, request: Request, code: int, message: str) -> None:
        if request.method in ("GET", "HEAD") and code not in (401, 403, 429):
            return
        caller = getattr(request.state, "caller", None)
        parts = [request.path_params.get(key, "") for key in ("cluster", "role", "environ", "name")]
        topology = getattr(request.state, "topology", "") or "/".join(part for part in parts if part)
        api_server_of(request).audit.write(
            self.name, who=str(caller or "nobody"), source=client_address(request), result=code, topology=topology,
            user=getattr(request.state, "user", ""), request=getattr(request.state, "request_id", ""), message=message,
            token=getattr(request.state, "token", ""),
        )  # fmt: skip


def _name(what: str) -> Any:
    return Path(description=what, min_length=1, max_length=MAX_NAME)


class TopologyTarget:
    """Topology that a request names. Its names are checked when used, after the other arguments."""

    def __init__(
        self,
        request: Request,
        cluster: Annotated[str, _name("cluster of this server")],
        role: Annotated[str, _name("role")],
        environ: Annotated[str, _name("environment")],
        name: Annotated[str, _name("name of the topology")],
    ) -> None:
        self.topologies = api_server_of(request).topologies
        self.name = name
        self._cluster = cluster
        self._names = (name, role, environ)

    @property
    def names(self) -> tuple[str, str, str]:
        """Return name, role and environment. Raises NotFound for another cluster and for unsafe names."""
        mine = self.topologies.config.cluster
        if self._cluster != mine:
            raise NotFound(f"this API server serves cluster {mine!r}, not {self._cluster[:64]!r}")
        for name in self._names:
            if not is_safe_name(name):
                raise NotFound(f"invalid name {name[:64]!r} of a role, environment or topology")
        return self._names

    @property
    def record(self) -> TopologyRecord:
        """Return the record in the state store. Raises NotFound."""
        return self.topologies.inspector.find(*self.names)


Target = Annotated[TopologyTarget, Depends()]


def topology_route(
    router: APIRouter, method: str, tail: str, summary: str, model: Any, **more: Any
) -> Callable[[Handler], Handler]:
    """Register a path of one topology. GET requires permission to look, other methods to change."""
    options: dict[str, Any] = {"responses": documented_errors(401, 404), **more}
    permission = Permission.LOOK if method == "GET" else Permission.CHANGE
    return router.api_route(
        "/topologies/{cluster}/{role}/{environ}/{name}" + tail, methods=[method], summary=summary, response_model=model,
        dependencies=[requires(permission)], **options,
    )  # fmt: skip
