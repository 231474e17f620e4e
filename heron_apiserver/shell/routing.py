"""How a function becomes a path: who may call it, how its errors become answers, and how a change is written down.

A path says which right it needs (``needs``), or stands in OPEN_PATHS; one that does neither cannot be made. ``Route``
looks at the token before anything else of a request is read: a stranger's body is never parsed.
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

from heron_apiserver.core.access import RIGHTS, SCOPES, Caller, Right, Role, bearer
from heron_apiserver.core.challenge import parts_of
from heron_apiserver.shell.api import Api
from heron_apiserver.shell.replies import answer_to, failures
from heron_control.web.names import UNDONE_HEADER
from heron_runtime.failures import Failure, NotAllowed, NotFound, Unavailable
from heron_runtime.model.ids import is_safe_name
from heron_runtime.model.records import TopologyRecord

log = logging.getLogger(__name__)
_SCHEME = Depends(HTTPBearer(auto_error=False, description="a token of the scope that the path needs"))
TOPOLOGY_HEADER, NONCE_HEADER = "heronry-topology", "heronry-nonce"
MAX_NAME = 128
OPEN_PATHS = ("/api/v1/version", "/healthz", "/readyz", "/leader", "/metrics", "/docs")  # need no token
Handler = TypeVar("Handler", bound=Callable[..., Any])


class WrongToken(Failure):
    """401."""


class Challenged(Failure):
    """401, with a nonce: a container is asked for its proof."""

    def __init__(self, nonce: str) -> None:
        super().__init__("prove that you are of this topology", "See docs/how-to/apiserver.md.")
        self.nonce = nonce


class TooManyWrong(Failure):
    """429."""


class NotReady(Unavailable):
    """503, before anything was done. ``soon``: whoever waits for it does not wait long."""

    def __init__(self, trouble: str, *, soon: bool) -> None:
        super().__init__(f"the api server is not ready: {trouble}", "Try again in a few seconds.")
        self.soon = soon


def api_of(request: Request) -> Api:
    """The api server that answers this request."""
    return cast(Api, request.app.state.api)


def source_of(request: Request) -> str:
    """The address a request came from: the connection's, never what a header says."""
    return request.client.host if request.client else ""


class Needs:
    """A dependency that says which right a path needs. ``Route`` sees to it; this is for the documentation."""

    def __init__(self, right: Right) -> None:
        self.right = right

    async def __call__(self, _: Any = _SCHEME) -> None:
        """The caller was let in before."""


def needs(right: Right) -> Any:
    """Among the dependencies of a path: who calls it has this right. Everybody else is refused."""
    return Depends(Needs(right))


def admit(request: Request, right: Right) -> None:
    """Note who calls. Raises WrongToken, TooManyWrong, NotAllowed, Unavailable; reads nothing but headers."""
    api = api_of(request)
    request.state.caller = None
    headers = request.headers.getlist("authorization")
    given = headers[0] if len(headers) == 1 else ""
    token, topology_id = bearer(given), request.headers.get(TOPOLOGY_HEADER, "")
    caller = _caller(request, token, topology_id, given)
    late = caller is not None and caller.expires is not None and time.time() >= caller.expires
    if caller is not None and late:
        request.state.caller = caller
        if not api.throttle.wrong(source_of(request), time.monotonic()):
            raise TooManyWrong("too many wrong tokens came from this address", "Wait a few seconds.")
        raise WrongToken(
            f"the token {caller.token!r} has expired", "An administrator makes another: heron token create."
        )
    unasked = not headers or (parts_of(given)[0] and not _answers_ours(request, given))
    if caller is None and right is Right.CODE and topology_id and unasked:
        raise Challenged(api.challenges.nonce(int(time.time()), topology_id, source_of(request)))
    if caller is None:
        if not api.throttle.wrong(source_of(request), time.monotonic()):
            raise TooManyWrong("too many wrong tokens came from this address", "Wait a few seconds.")
        raise WrongToken(
            "the token is wrong" if token else "there is no token in the Authorization header",
            f"`heron login {api.service.config.cluster} --api URL` stores the right one.",
        )
    request.state.caller = caller
    if not caller.may(right):
        wanted = ", ".join(scope for scope in SCOPES if right in RIGHTS[scope])
        raise NotAllowed(
            f"a token of scope {caller.role} does not give the right to {right}", f"Use one of scope {wanted}."
        )
    if right is Right.CHANGE and not api.ready:
        raise NotReady(api.trouble, soon=api.starting)


def _caller(request: Request, token: str, topology_id: str, given: str) -> Caller | None:
    api = api_of(request)
    found = api.tokens.known(token)
    if found is not None:
        return Caller(Role(found.scope), token=found.name, expires=found.expires)
    if _answers_ours(request, given):
        nonce, proof = parts_of(given)
        digest = request.path_params.get("digest", "")
        return Caller(Role.TOPOLOGY, topology_id) if api.service.proves(topology_id, digest, nonce, proof) else None
    return None


def _answers_ours(request: Request, given: str) -> bool:
    """True if the header holds a nonce that this server gave this caller. Behind a balancer, what another one gave may
    come here: then the caller is asked anew, which tells it as much as when it asked without."""
    topology_id = request.headers.get(TOPOLOGY_HEADER, "")
    return api_of(request).challenges.is_ours(parts_of(given)[0], int(time.time()), topology_id, source_of(request))


class Route(APIRoute):
    """A path whose errors are answers of ours, and whose changes and refusals are in the audit file."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        asked = [d.dependency.right for d in options.get("dependencies") or () if isinstance(d.dependency, Needs)]
        if len(asked) != (path not in OPEN_PATHS):
            raise ValueError(f"{path} says {len(asked)} rights; it needs one, or to stand in OPEN_PATHS")
        self.right: Right | None = asked[0] if asked else None
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Around FastAPI's own."""
        original: Callable[[Request], Awaitable[Response]] = super().get_route_handler()
        right = self.right

        async def handle(request: Request) -> Response:
            message = ""
            try:
                if right is not None:
                    admit(request, right)
                response = await original(request)
            except Challenged as error:  # every container begins so: nothing to write down
                response = answer_to(error, 401)
                response.headers[NONCE_HEADER] = error.nonce
                return response
            except (WrongToken, TooManyWrong) as error:
                response = answer_to(error, 401 if isinstance(error, WrongToken) else 429)
                message = error.message
            except Exception as error:
                response = answer_to(error)
                if isinstance(error, NotReady) and error.soon:
                    response.headers[UNDONE_HEADER] = "starting"
                message = str(error) or type(error).__name__
            self._write_down(request, response.status_code, message)
            return response

        return handle

    def _write_down(self, request: Request, code: int, message: str) -> None:
        if request.method in ("GET", "HEAD") and code not in (401, 403, 429):
            return
        caller = getattr(request.state, "caller", None)
        parts = [request.path_params.get(key, "") for key in ("cluster", "role", "environ", "name")]
        topology = getattr(request.state, "topology", "") or "/".join(part for part in parts if part)
        api_of(request).audit.write(
            self.name, who=str(caller or "nobody"), source=source_of(request), result=code, topology=topology,
            user=getattr(request.state, "user", ""), request=getattr(request.state, "request_id", ""), message=message,
            token=getattr(request.state, "token", ""),
        )  # fmt: skip


def _name(what: str) -> Any:
    return Path(description=what, min_length=1, max_length=MAX_NAME)


class TopologyRequest:
    """A request about one topology. Its names are looked at when they are used, after the other arguments."""

    def __init__(
        self,
        request: Request,
        cluster: Annotated[str, _name("this server's cluster")],
        role: Annotated[str, _name("role")],
        environ: Annotated[str, _name("environment")],
        name: Annotated[str, _name("name of the topology")],
    ) -> None:
        self.service = api_of(request).service
        self.name = name
        self._cluster = cluster
        self._place = (name, role, environ)

    @property
    def place(self) -> tuple[str, str, str]:
        """Name, role and environment. Raises NotFound for another cluster, and for what can be no name: it never comes
        near a path."""
        mine = self.service.config.cluster
        if self._cluster != mine:
            raise NotFound(f"this is the api server of cluster {mine!r}, not {self._cluster[:64]!r}")
        for name in self._place:
            if not is_safe_name(name):
                raise NotFound(f"{name[:64]!r} is no name of a role, environment or topology")
        return self._place

    @property
    def record(self) -> TopologyRecord:
        """What the state store knows of it. Raises NotFound."""
        return self.service.inspector.find(*self.place)


Asked = Annotated[TopologyRequest, Depends()]


def serve(
    router: APIRouter, method: str, tail: str, summary: str, model: Any, **more: Any
) -> Callable[[Handler], Handler]:
    """Serve a path about one topology: who asks by GET needs the right to look, anybody else that to change."""
    options: dict[str, Any] = {"responses": failures(401, 404), **more}
    right = Right.LOOK if method == "GET" else Right.CHANGE
    return router.api_route(
        "/topologies/{cluster}/{role}/{environ}/{name}" + tail, methods=[method], summary=summary, response_model=model,
        dependencies=[needs(right)], **options,
    )  # fmt: skip
