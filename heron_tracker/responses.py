"""Answers: in the envelope (or bare with ``?envelope=false``), with an ETag where it is worth it, and errors alike."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from heron_control.web.statuses import RETRY, argument_faults
from heron_runtime.failures import Failure
from heronry.version import VERSION

log = logging.getLogger(__name__)
STALE_HEADER = "x-heronry-stale"


class Envelope(BaseModel):
    """What every answer is wrapped in, unless ``envelope=false`` asks for the bare result."""

    status: str = Field(description="success or failure")
    message: str = Field(description="why it failed; on success a remark, as that the state is stale; else empty")
    version: str
    tracker_version: str
    executiontime: float = Field(description="seconds")
    result: Any = Field(default=None, description="the answer itself; null on failure")


BARE = {
    "description": "The answer in the envelope; with `envelope=false` the result alone.",
    "content": {"application/json": {"schema": {"anyOf": [{"$ref": "#/components/schemas/Envelope"}, {}]}}},
}
FAILURES: dict[int | str, dict[str, Any]] = {
    code: {
        "description": why,
        "content": {"application/json": {"schema": {"anyOf": [{"$ref": "#/components/schemas/Envelope"}, {}]}}},
    }
    for code, why in (
        (404, "What was asked for is not there."),
        (422, "An argument makes no sense."),
        (503, "A process or the state store does not answer."),
    )
}
EnvelopeChoice = Annotated[bool, Query(alias="envelope", description="false: the bare result, as Heron 0.20.5 had it")]


def success_response(
    request: Request, result: Any, *, message: str = "", stale: str = "", tagged: bool = False
) -> Response:
    """A successful answer. ``stale`` names the cluster whose last known state this is."""
    headers = {}
    if stale:
        message = message or f"the state store of {stale} does not answer; this is its last known state"
        headers[STALE_HEADER] = _header(stale)
    if tagged:
        tag = entity_tag(result)
        headers |= {"etag": tag, "cache-control": "no-cache"}
        if tag_matches(request.headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers=headers)
    content = result if _bare(request) else envelope(result, message, _seconds(request), VERSION)
    return JSONResponse(content, headers=headers)


def error_response(request: Request, code: int, message: str, headers: Any = None) -> Response:
    """An answer that is an error."""
    bare = f"request failed: {message}"
    content: Any = bare if _bare(request) else envelope(None, message, _seconds(request), VERSION, failed=True)
    return JSONResponse(content, status_code=code, headers=headers)


def encode_error(message: str) -> bytes:
    """The JSON of an answer that is an error, for those who are not let in."""
    return json.dumps(envelope(None, message, 0.0, VERSION, failed=True)).encode()


def install_error_handlers(app: FastAPI) -> None:
    """Make every error an answer of ours."""

    async def failed(request: Request, error: Exception) -> Response:
        assert isinstance(error, Failure)
        retry = RETRY if error.http_status == 503 else None
        return error_response(request, error.http_status, error.message, retry)

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = "there is no such path; see /docs" if error.status_code == 404 else str(error.detail)
        return error_response(request, error.status_code, message, error.headers)

    async def bad_arguments(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return error_response(request, 422, "; ".join(argument_faults(error)))

    async def fault(request: Request, error: Exception) -> Response:
        log.error("fault while answering %r", request.url.path, exc_info=error)
        return error_response(request, 500, f"fault in the tracker: {type(error).__name__}; its log says more")

    app.add_exception_handler(Failure, failed)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(RequestValidationError, bad_arguments)
    app.add_exception_handler(Exception, fault)


def plain_json(data: Any) -> Response:
    """JSON without envelope, for clients that know nothing of it (Prometheus)."""
    return Response(json.dumps(data), media_type="application/json")


def _bare(request: Request) -> bool:
    return request.query_params.get("envelope", "").lower() in ("false", "0", "no", "off", "f", "n")


def _seconds(request: Request) -> float:
    began = getattr(request.state, "began", None)
    return round(time.perf_counter() - began, 6) if began is not None else 0.0


def _header(text: str) -> str:
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text)


SUCCESS = "success"
FAILURE = "failure"


def envelope(result: Any, message: str, seconds: float, version: str, *, failed: bool = False) -> dict[str, Any]:
    """An answer. ``seconds`` is how long it took."""
    return {
        "status": FAILURE if failed else SUCCESS,
        "message": message,
        "version": version,
        "tracker_version": version,
        "executiontime": seconds,
        "result": result,
    }


def entity_tag(result: Any) -> str:
    """A weak ETag of a result: the same for every replica, whatever the envelope says of time."""
    text = json.dumps(result, sort_keys=True, separators=(",", ":"), default=str)
    return f'W/"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"'


def tag_matches(if_none_match: str, tag: str) -> bool:
    """True if the client has this version already (weak comparison, as RFC 9110 wants it for GET)."""
    given = [part.strip() for part in if_none_match.split(",")]
    bare = tag.removeprefix("W/")
    return "*" in given or any(part.removeprefix("W/") == bare for part in given)
