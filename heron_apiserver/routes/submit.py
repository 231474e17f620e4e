"""Route for submits: ``POST /api/v1/topologies``."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from heron_apiserver.access import Permission
from heron_apiserver.api_server import ApiServer
from heron_apiserver.request_log import RequestRecord, is_request_id
from heron_apiserver.responses import documented_errors, submitted_document
from heron_apiserver.routing import AuthorizedRoute, api_server_of, requires
from heron_apiserver.submit_request import SubmitRequest, check_definition, fingerprint, parse_fields
from heron_apiserver.upload import SubmitForm, receive_form
from heron_control.packing import describe
from heron_runtime.failures import InvalidTopology, Unavailable
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.wire import message_codecs
from heron_runtime.wire.errors import MalformedMessage

router = APIRouter(prefix="/api/v1", tags=["topologies"], route_class=AuthorizedRoute)


class Submitted(BaseModel):
    """Identity of a submitted topology."""

    cluster: str
    role: str
    environ: str
    environment: str = Field(description="the environment under Heron's name")
    name: str
    changes: list[str] = Field([], description="parallelism and settings of the replaced version that differ")


class DryRun(BaseModel):
    """Packing plan of a dry run."""

    response: dict[str, Any]


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


FORM: dict[str, Any] = {
    "type": "object",
    "required": ["name", "cluster", "role", "environment", "definition"],
    "properties": {
        "name": _text("name of the topology, as in its definition"),
        "cluster": _text("this server's cluster"),
        "role": _text("role that the topology runs for"),
        "environment": _text("such as default"),
        "user": _text("user name as stated by the client"),
        "state": _text("running (default), or paused", enum=["running", "paused"]),
        "settings": _text("JSON object of heron.* keys"),
        "replace": _text(
            "kill a topology of this name first and continue with its state",
            enum=["true", "false"],
        ),
        "without_state": _text("with replace: start without the old state", enum=["true", "false"]),
        "timeout_seconds": _text("with replace: seconds to drain the old topology, 1 to 1800 (default 120)"),
        "dry_run": _text("return the packing plan without submitting", enum=["true", "false"]),
        "from_checkpoint": _text("start with this state: CLUSTER/ROLE/ENV/TOPOLOGY, optionally @NUMBER or @NAME"),
        "allow_dropped_state": _text("drop state without a matching component", enum=["true", "false"]),
        "package": _text("SHA-256 of a stored package, instead of the file topology"),
        "definition": _text("the topology's definition, protobuf heronry.v1.Topology", format="binary"),
        "topology": _text("the code: a tar.gz of files and folders", format="binary"),
    },
}
BODY = {"required": True, "content": {"multipart/form-data": {"schema": FORM}}}


@router.post(
    "/topologies", status_code=201, response_model=Submitted, summary="Submit a topology",
    openapi_extra={"requestBody": BODY}, dependencies=[requires(Permission.CHANGE)],
    responses={200: {"model": Submitted | DryRun, "description": "Running already, or dry_run."},
               **documented_errors(401, 404, 409, 507)},
)  # fmt: skip
async def submit(
    request: Request,
    idempotency_key: Annotated[
        str | None, Header(description="id of the request; a repeated request with the same id is executed once")
    ] = None,
) -> Response:
    """Submit a topology and return 201 when its containers are being started.

    `status` tells how they proceed. Without `Idempotency-Key` the id of the definition identifies the request.
    """
    api = api_server_of(request)
    if idempotency_key is not None and not is_request_id(idempotency_key):
        raise InvalidTopology("Idempotency-Key must be printable ASCII of at most 128 characters")
    if api.uploads >= api.upload_limits.uploads:
        raise Unavailable(f"the limit of {api.uploads} uploads at a time is reached", "Try again in a few seconds.")
    api.uploads += 1
    api.metrics.upload(api.uploads)
    form = SubmitForm()
    try:
        await receive_form(request, form, api.packages.incoming, api.upload_limits.package_bytes)
        _name_for_audit(request, form, idempotency_key)
        return await run_in_threadpool(_submit, api, form, idempotency_key)
    finally:
        api.uploads -= 1
        api.metrics.upload(api.uploads)
        await run_in_threadpool(form.discard)


def _name_for_audit(request: Request, form: SubmitForm, request_id: str | None) -> None:
    """Name the topology of the request for the audit log."""
    parts = (form.fields.get(key, "?")[:128] for key in ("cluster", "role", "environment", "name"))
    request.state.topology = "/".join(parts)
    request.state.user = form.fields.get("user", "")
    request.state.request_id = request_id or ""


def _submit(api: ApiServer, form: SubmitForm, request_id: str | None) -> Response:
    """Check the form and run it. Called on a thread. Raises everything that ``error_response_for`` handles."""
    fields = parse_fields(form.fields, form.files, api.topologies.config.cluster)
    assert form.definition is not None
    try:
        definition = message_codecs.TOPOLOGY.decode_strictly(form.definition)
    except MalformedMessage as error:
        raise InvalidTopology(f"invalid definition: {error}") from None
    packing = check_definition(definition, fields)
    if fields.dry_run:
        return JSONResponse({"response": describe(packing, definition.config)})
    package = fields.package if form.package is None else form.package.finish()
    try:
        with api.packages.hold(package):  # before it is stored, since another topology may release the same code
            if form.package is not None:
                api.metrics.uploaded(form.package.size)
                api.packages.accept(form.package)
            return _run(api, form, fields, definition, packing, package, request_id)
    finally:
        api.topologies.release(package)  # after a failed or repeated submit


def _run(
    api: ApiServer,
    form: SubmitForm,
    fields: SubmitRequest,
    definition: TopologyDefinition,
    packing: PackingPlan,
    package: str,
    request_id: str | None,
) -> Response:
    """Run a request once per request id."""
    assert form.definition is not None
    digest = fingerprint(fields, form.definition, package)
    entry = RequestRecord(request_id or definition.id, digest, definition.name, definition.id, time.time())
    answer = api.request_log.begin(entry)
    if answer is not None:
        return JSONResponse(json.loads(answer), 201, {"idempotency-replayed": "true"})
    changes = api.topologies.describe_replacement(fields, definition) if fields.replace else []
    try:
        started = api.topologies.submit(fields, definition, packing, package)
    except BaseException:
        api.request_log.failed(entry.request_id)
        raise
    shown: dict[str, Any] = submitted_document(fields.cluster, fields.role, fields.environ, definition.name)
    shown |= {"changes": changes} if changes else {}
    api.request_log.succeeded(entry, json.dumps(shown))
    return JSONResponse(shown, 201 if started else 200)
