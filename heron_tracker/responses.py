"""Responses of the tracker: Heron's envelope (or bare with ``?envelope=false``), ETags, and uniform errors."""

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

from heron_control.web.guard import RETRY, argument_faults
from heron_runtime.failures import Failure
from heronry.version import VERSION

log = logging.getLogger(__name__)
STALE_HEADER = "x-heronry-stale"


class Envelope(BaseModel):
    """Wrapper of every response, unless ``envelope=false`` requests the bare result."""

    status: str = Field(description="success or failure")
    message: str = Field(description="error; on success a remark, such as a stale state, or empty")
    version: str
    tracker_version: str
    executiontime: float = Field(description="seconds")
    result: Any = Field(default=None, description="result; null on failure")


BARE = {
    "description": "The result in the envelope, or bare with `envelope=false`.",
    "content": {"application/json": {"schema": {"anyOf": [{"$ref": "#/components/schemas/Envelope"}, {}]}}},
}
FAILURES: dict[int | str, dict[str, Any]] = {
    code: {
        "description": why,
        "content": {"application/json": {"schema": {"anyOf": [{"$ref": "#/components/schemas/Envelope"}, {}]}}},
    }
    for code, why in (
        (404, "The requested object does not exist."),
        (422, "An argument is invalid."),
        (503, "A process or the state store does not answer."),
    )
}
EnvelopeChoice = Annotated[bool, Query(alias="envelope", description="false: the bare result, as in Heron 0.20.5")]


def success_response(
    request: Request, result: Any, *, message: str = "", stale: str = "", tagged: bool = False
) -> Response:
    """Return a successful response. ``stale`` names the cluster whose last known state this is."""
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
    """Return an error response."""
    bare = f"request failed: {message}"
    content: Any = bare if _bare(request) else envelope(None, message, _seconds(request), VERSION, failed=True)
    return JSONResponse(content, status_code=code, headers=headers)


def encode_error(message: str) -> bytes:
    """Return the JSON of an error, for refused requests."""
    return json.dumps(envelope(None, message, 0.0, VERSION, failed=True)).encode()


def install_error_handlers(app: FastAPI) -> None:
    """Install handlers that format every error."""

    async def failed(request: Request, error: Exception) -> Response:
        assert isinstance(error, Failure)
        retry = RETRY if error.http_status == 503 else None
        return error_response(request, error.http_status, error.message, retry)

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = "path not found; see /docs" if error.status_code == 404 else str(error.detail)
        return error_response(request, error.status_code, message, error.headers)

    async def bad_arguments(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return error_response(request, 422, "; ".join(argument_faults(error)))

    async def fault(request: Request, error: Exception) -> Response:
        log.error("failure while answering %r", request.url.path, exc_info=error)
        return error_response(request, 500, f"internal error of the tracker: {type(error).__name__}; see its log")

    app.add_exception_handler(Failure, failed)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(RequestValidationError, bad_arguments)
    app.add_exception_handler(Exception, fault)


def plain_json(data: Any) -> Response:
    """Return JSON without envelope, for clients such as Prometheus."""
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
    """Wrap a result in Heron's envelope, with its fields before and after 0.20.5. ``seconds`` is the duration."""
    return {
        "status": FAILURE if failed else SUCCESS,
        "message": message,
        "version": version,
        "tracker_version": version,
        "executiontime": seconds,
        "result": result,
    }


def entity_tag(result: Any) -> str:
    """Return a weak ETag of a result, equal on all replicas and independent of the time in the envelope."""
    text = json.dumps(result, sort_keys=True, separators=(",", ":"), default=str)
    return f'W/"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"'


def tag_matches(if_none_match: str, tag: str) -> bool:
    """Return True if the client has this version (weak comparison of RFC 9110)."""
    given = [part.strip() for part in if_none_match.split(",")]
    bare = tag.removeprefix("W/")
    return "*" in given or any(part.removeprefix("W/") == bare for part in given)
