"""``POST /api/v1/topologies``: a topology comes in, in one request."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from heron_apiserver.core.access import Right
from heron_apiserver.core.request_book import Entry, is_request_id
from heron_apiserver.core.submission import SubmitFields, check_definition, fingerprint, read_fields
from heron_apiserver.shell.api import Api
from heron_apiserver.shell.replies import failures, submitted
from heron_apiserver.shell.routing import Route, api_of, needs
from heron_apiserver.shell.upload import Form, receive
from heron_control.packing import describe
from heron_runtime.failures import InvalidTopology, Unavailable
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.wire import message_codecs
from heron_runtime.wire.errors import MalformedMessage

router = APIRouter(prefix="/api/v1", tags=["topologies"], route_class=Route)


class Submitted(BaseModel):
    """A topology that was submitted."""

    cluster: str
    role: str
    environ: str
    environment: str = Field(description="the same, under Heron's name")
    name: str


class DryRun(BaseModel):
    """A packing plan, and nothing was changed."""

    response: dict[str, Any]


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


FORM: dict[str, Any] = {
    "type": "object",
    "required": ["name", "cluster", "role", "environment", "definition"],
    "properties": {
        "name": _text("name of the topology, as in its definition"),
        "cluster": _text("this server's cluster"),
        "role": _text("for whom"),
        "environment": _text("as default"),
        "user": _text("who submits, as the client says"),
        "state": _text("running (default), or paused", enum=["running", "paused"]),
        "settings": _text("JSON object of heron.* keys"),
        "replace": _text(
            "kill a topology of this name first; if it keeps state, the new one goes on with that",
            enum=["true", "false"],
        ),
        "without_state": _text("with replace: begin anew", enum=["true", "false"]),
        "timeout_seconds": _text("with replace, so long what keeps state may take to be drained: 1 to 1800 (120)"),
        "dry_run": _text("answer with the packing plan and change nothing", enum=["true", "false"]),
        "from_checkpoint": _text("begin with this state: CLUSTER/ROLE/ENV/TOPOLOGY, and perhaps @NUMBER or @NAME"),
        "allow_dropped_state": _text("leave state behind that has no place", enum=["true", "false"]),
        "package": _text("SHA-256 of a package that is here already; in place of the file topology"),
        "definition": _text("the topology's definition, protobuf heronry.v1.Topology", format="binary"),
        "topology": _text("the code: a tar.gz of files and folders", format="binary"),
    },
}
BODY = {"required": True, "content": {"multipart/form-data": {"schema": FORM}}}


@router.post(
    "/topologies", status_code=201, response_model=Submitted, summary="Submit a topology",
    openapi_extra={"requestBody": BODY}, dependencies=[needs(Right.CHANGE)],
    responses={200: {"model": Submitted | DryRun, "description": "It runs already; or dry_run"},
               **failures(401, 404, 409, 507)},
)  # fmt: skip
async def submit(
    request: Request,
    idempotency_key: Annotated[
        str | None, Header(description="a request that is sent again with the same id is not done again")
    ] = None,
) -> Response:
    """201 when its containers are being started; what becomes of them is in `status`. A request without
    `Idempotency-Key` has the definition's id for one."""
    api = api_of(request)
    if idempotency_key is not None and not is_request_id(idempotency_key):
        raise InvalidTopology("Idempotency-Key is printable ASCII of at most 128 characters")
    if api.uploads >= api.bounds.uploads:
        raise Unavailable(f"{api.uploads} uploads are under way, which is the most", "Try again in a few seconds.")
    api.uploads += 1
    api.counters.upload(api.uploads)
    form = Form()
    try:
        await receive(request, form, api.packages.incoming, api.bounds.package_bytes)
        _name_it(request, form, idempotency_key)
        return await run_in_threadpool(_submit, api, form, idempotency_key)
    finally:
        api.uploads -= 1
        api.counters.upload(api.uploads)
        await run_in_threadpool(form.discard)


def _name_it(request: Request, form: Form, request_id: str | None) -> None:
    """For the audit file."""
    parts = (form.fields.get(key, "?")[:128] for key in ("cluster", "role", "environment", "name"))
    request.state.topology = "/".join(parts)
    request.state.user = form.fields.get("user", "")
    request.state.request_id = request_id or ""


def _submit(api: Api, form: Form, request_id: str | None) -> Response:
    """On a thread. Raises everything that ``answer_to`` knows."""
    fields = read_fields(form.fields, form.files, api.service.config.cluster)
    assert form.definition is not None
    try:
        definition = message_codecs.TOPOLOGY.decode_strictly(form.definition)
    except MalformedMessage as error:
        raise InvalidTopology(f"the definition cannot be read: {error}") from None
    packing = check_definition(definition, fields)
    if fields.dry_run:
        return JSONResponse({"response": describe(packing, definition.config)})
    package = fields.package if form.package is None else form.package.finish()
    try:
        with api.packages.held(package):  # from before it is kept: the end of another of the same code must not take it
            if form.package is not None:
                api.counters.uploaded(form.package.size)
                api.packages.accept(form.package)
            return _run(api, form, fields, definition, packing, package, request_id)
    finally:
        api.service.release(package)  # of a submit that failed, or was done before


def _run(
    api: Api,
    form: Form,
    fields: SubmitFields,
    definition: TopologyDefinition,
    packing: PackingPlan,
    package: str,
    request_id: str | None,
) -> Response:
    """Once for each request id."""
    assert form.definition is not None
    mark = fingerprint(fields, form.definition, package)
    entry = Entry(request_id or definition.id, mark, definition.name, definition.id, time.time())
    answer = api.requests.begin(entry)
    if answer is not None:
        return JSONResponse(json.loads(answer), 201, {"idempotency-replayed": "true"})
    try:
        done = api.service.submit(fields, definition, packing, package)
    except BaseException:
        api.requests.failed(entry.request_id)
        raise
    shown = submitted(fields.cluster, fields.role, fields.environ, definition.name)
    api.requests.succeeded(entry, json.dumps(shown))
    return JSONResponse(shown, 201 if done else 200)
