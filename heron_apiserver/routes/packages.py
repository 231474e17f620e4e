"""Route for package downloads: ``GET /api/v1/packages/{digest}``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import FileResponse, Response

from heron_apiserver.access import Caller, CallerRole, Permission
from heron_apiserver.responses import documented_errors
from heron_apiserver.routing import AuthorizedRoute, api_server_of, requires
from heron_control.packaging.shipping import DIGEST
from heron_runtime.failures import NotAllowed, NotFound

router = APIRouter(prefix="/api/v1", tags=["packages"], route_class=AuthorizedRoute)
FILE = {"content": {"application/gzip": {"schema": {"type": "string", "format": "binary"}}}}


@router.api_route(
    "/packages/{digest}", methods=["GET"], response_class=Response, summary="Download a package",
    responses={200: FILE, **documented_errors(401, 404)}, dependencies=[requires(Permission.CODE)],
)  # fmt: skip
@router.api_route(
    "/packages/{digest}", methods=["HEAD"], response_class=Response, summary="Check for a package",
    name="package_is_here", responses={200: {"description": "The package exists."}, **documented_errors(401, 404)},
    dependencies=[requires(Permission.CODE)],
)  # fmt: skip
def package(
    request: Request,
    digest: Annotated[str, Path(description="SHA-256 of the tar.gz, in hex", pattern=f"^{DIGEST.pattern}$")],
) -> Response:
    """Download a package.

    A caller with permission to submit may download any package, a container only the one of its topology. The
    container sends its topology's id in the header `heronry-topology`, receives 401 with `heronry-nonce`, and
    repeats the request with the proof of the topology's secret over that nonce.
    """
    api = api_server_of(request)
    caller: Caller = request.state.caller
    if caller.role is CallerRole.TOPOLOGY and api.topologies.find_package_digest(caller.topology_id) != digest:
        raise NotAllowed("the package does not belong to the topology")
    if request.method == "HEAD":
        if not api.packages.has(digest):
            raise NotFound(f"package {digest}: not found")
        return Response(media_type="application/gzip", headers={"etag": f'"{digest}"'})
    path = api.packages.path(digest)
    if path is None:
        raise NotFound(f"package {digest}: not found")
    return FileResponse(path, media_type="application/gzip", headers={"etag": f'"{digest}"'})
