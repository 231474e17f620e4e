"""``GET /api/v1/packages/{digest}``: a container fetches its code, by a proof of its topology's secret."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import FileResponse, Response

from heron_apiserver.access import Caller, CallerRole, Permission
from heron_apiserver.responses import failures
from heron_apiserver.routing import AuthorizedRoute, api_server_of, requires
from heron_control.packaging.shipping import DIGEST
from heron_runtime.failures import NotAllowed, NotFound

router = APIRouter(prefix="/api/v1", tags=["packages"], route_class=AuthorizedRoute)
FILE = {"content": {"application/gzip": {"schema": {"type": "string", "format": "binary"}}}}


@router.api_route(
    "/packages/{digest}", methods=["GET"], response_class=Response, summary="Download a package",
    responses={200: FILE, **failures(401, 404)}, dependencies=[requires(Permission.CODE)],
)  # fmt: skip
@router.api_route(
    "/packages/{digest}", methods=["HEAD"], response_class=Response, summary="Is this package here?",
    name="package_is_here", responses={200: {"description": "It is."}, **failures(401, 404)},
    dependencies=[requires(Permission.CODE)],
)  # fmt: skip
def package(
    request: Request,
    digest: Annotated[str, Path(description="SHA-256 of the tar.gz, in hex", pattern=f"^{DIGEST.pattern}$")],
) -> Response:
    """Requires permission to submit, or proof of a topology's secret, which gives access to its own package only.

    A container sends its topology's id in the header `heronry-topology`, receives 401 with `heronry-nonce`, and repeats
    the request with the proof of the secret over that nonce."""
    api = api_server_of(request)
    caller: Caller = request.state.caller
    if caller.role is CallerRole.TOPOLOGY and api.service.find_package_digest(caller.topology_id) != digest:
        raise NotAllowed("this is not the package of that topology")
    if request.method == "HEAD":
        if not api.packages.has(digest):
            raise NotFound(f"there is no package {digest}")
        return Response(media_type="application/gzip", headers={"etag": f'"{digest}"'})
    path = api.packages.path(digest)
    if path is None:
        raise NotFound(f"there is no package {digest}")
    return FileResponse(path, media_type="application/gzip", headers={"etag": f'"{digest}"'})
