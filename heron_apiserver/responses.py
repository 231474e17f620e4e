"""Responses of the API server: JSON, and errors of one form with a message and often a hint."""

from __future__ import annotations

import errno
import json
import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from heron_apiserver.request_log import RequestIdReused, RequestInProgress
from heron_apiserver.submit_request import SubmitRejected
from heron_control.web.guard import RETRY, argument_faults
from heron_runtime.failures import UsageError, to_failure

log = logging.getLogger(__name__)
CLIENT_GONE = 499


class Problem(BaseModel):
    """Body of every error response."""

    message: str = Field(description="what is wrong")
    cure: str = Field(default="", description="remedy")
    details: list[str] = Field(default_factory=list, description="all errors, if there are several")
    missing: list[str] = Field(default_factory=list, description="fields of a submit request that are missing")
    usage: bool = Field(default=False, description="true for invalid requests (the command exits with 2)")


def documented_errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries of the errors of a path, including those that any path may return."""
    return {code: {"model": Problem, "description": _WORDS[code]} for code in sorted({*codes, *_ANYWHERE})}


_ANYWHERE = (403, 408, 413, 414, 421, 422, 429, 503)
_WORDS = {
    401: "The token is missing or wrong.",
    403: "The token does not permit the operation, or the request comes from a page of another site.",
    404: "The named object does not exist.",
    408: "The body did not arrive in time.",
    409: "The name is in use, or the same request is in progress.",
    413: "The body is too large.",
    414: "The query is too long.",
    421: "The host name is not allowed.",
    422: "The request is invalid, or the topology cannot run.",
    429: "Too many wrong tokens from this address.",
    503: "A required service does not answer; try again.",
    507: "The disk of the API server is full.",
}


def submitted_document(cluster: str, role: str, environ: str, name: str) -> dict[str, str]:
    """Return the answer to a submit, in Heron's form."""
    return {"cluster": cluster, "role": role, "environ": environ, "environment": environ, "name": name}


def error_response(
    code: int, message: str, cure: str = "", headers: dict[str, str] | None = None, **more: Any
) -> Response:
    """Return an error response."""
    content = {"message": message, "cure": cure, "details": [], "missing": [], "usage": False, **more}
    extra = dict(headers or {})
    if code == 401:
        extra["www-authenticate"] = 'Bearer realm="heron"'
    if code in (408, 413):
        extra["connection"] = "close"
    return JSONResponse(content, code, headers={**(RETRY if code == 503 else {}), **extra})


def encode_error(message: str) -> bytes:
    """Return the JSON of an error."""
    return json.dumps(Problem(message=message).model_dump()).encode()


def error_response_for(error: Exception, code: int | None = None) -> Response:
    """Return the response for an exception. Unknown exceptions are logged and become 500. ``code`` overrides."""
    if isinstance(error, RequestValidationError):
        return validation(error)
    if isinstance(error, HTTPException):
        headers = dict(error.headers or {})
        message = str(error.detail)
        if error.status_code == 404 and message == "Not Found":
            message = "path not found; see /docs"
        return error_response(error.status_code, message, headers=headers)
    if isinstance(error, SubmitRejected):
        return error_response(422, str(error), details=list(error.problems), missing=list(error.missing))
    if isinstance(error, RequestIdReused):
        return error_response(422, str(error))
    if isinstance(error, RequestInProgress):
        return error_response(409, str(error), headers=RETRY)
    if isinstance(error, ClientDisconnect):
        return error_response(CLIENT_GONE, "the client closed the connection")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return error_response(507, "the disk of the API server is full", "Free some space, or kill a topology.")
    known = to_failure(error)
    if known is None or isinstance(error, OSError):
        log.error("failure while answering a request", exc_info=error)
        return error_response(500, f"internal error of the API server: {type(error).__name__}; see its log")
    usage = isinstance(known, UsageError)
    return error_response(
        code or known.http_status, known.message, known.cure, details=list(known.details), usage=usage
    )


def validation(error: RequestValidationError) -> Response:
    """Return the response to invalid arguments."""
    faults = argument_faults(error)
    return error_response(422, "; ".join(faults), details=faults, usage=True)


def install_error_handlers(app: FastAPI) -> None:
    """Install handlers for errors outside the routes (``routing.AuthorizedRoute`` handles those within)."""

    async def no_path(_: Request, error: Exception) -> Response:
        return error_response_for(error)

    app.add_exception_handler(HTTPException, no_path)
    app.add_exception_handler(Exception, no_path)
