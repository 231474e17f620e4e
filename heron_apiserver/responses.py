"""Answers: plain JSON, and errors that are all alike: a message, and often a cure."""

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
from heron_control.web.statuses import RETRY, argument_faults
from heron_runtime.failures import UsageError
from heron_runtime.net.foreign import translate

log = logging.getLogger(__name__)
CLIENT_GONE = 499


class Problem(BaseModel):
    """Every answer that is an error."""

    message: str = Field(description="what is wrong")
    cure: str = Field(default="", description="what to do about it")
    details: list[str] = Field(default_factory=list, description="every fault that was found, where there are several")
    missing: list[str] = Field(default_factory=list, description="fields of a submit request that are missing")
    usage: bool = Field(default=False, description="true where the request makes no sense (the command exits with 2)")


def failures(*codes: int) -> dict[int | str, dict[str, Any]]:
    """For the documentation of a path: the errors it may answer, beside those that any path may."""
    return {code: {"model": Problem, "description": _WORDS[code]} for code in sorted({*codes, *_ANYWHERE})}


_ANYWHERE = (403, 408, 413, 414, 421, 422, 429, 503)
_WORDS = {
    401: "The token is missing or wrong.",
    403: "The token does not give this right, or the request comes from a page of another site.",
    404: "What was named is not there.",
    408: "The body did not come in time.",
    409: "The name is in use, or this very request is being done.",
    413: "The body is too large.",
    414: "The query is too long.",
    421: "The server does not answer to this host name.",
    422: "The request makes no sense, or the topology cannot run.",
    429: "Too many wrong tokens came from this address.",
    503: "Something that has to answer does not; try again.",
    507: "The disk of the api server is full.",
}


def submitted_document(cluster: str, role: str, environ: str, name: str) -> dict[str, str]:
    """The answer to a submit, as Heron's."""
    return {"cluster": cluster, "role": role, "environ": environ, "environment": environ, "name": name}


def problem(code: int, message: str, cure: str = "", headers: dict[str, str] | None = None, **more: Any) -> Response:
    """An error."""
    content = {"message": message, "cure": cure, "details": [], "missing": [], "usage": False, **more}
    extra = dict(headers or {})
    if code == 401:
        extra["www-authenticate"] = 'Bearer realm="heron"'
    if code in (408, 413):
        extra["connection"] = "close"
    return JSONResponse(content, code, headers={**(RETRY if code == 503 else {}), **extra})


def encode_error(message: str) -> bytes:
    """The JSON of an error."""
    return json.dumps(Problem(message=message).model_dump()).encode()


def error_response_for(error: Exception, code: int | None = None) -> Response:
    """The answer that says what ``error`` means; one that nobody knows is logged and is 500. ``code`` overrules."""
    if isinstance(error, RequestValidationError):
        return validation(error)
    if isinstance(error, HTTPException):
        headers = dict(error.headers or {})
        message = str(error.detail)
        if error.status_code == 404 and message == "Not Found":
            message = "there is no such path; see /docs"
        return problem(error.status_code, message, headers=headers)
    if isinstance(error, SubmitRejected):
        return problem(422, str(error), details=list(error.problems), missing=list(error.missing))
    if isinstance(error, RequestIdReused):
        return problem(422, str(error))
    if isinstance(error, RequestInProgress):
        return problem(409, str(error), headers=RETRY)
    if isinstance(error, ClientDisconnect):
        return problem(CLIENT_GONE, "the client has gone")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return problem(507, "the disk of the api server is full", "Free some space on it, or kill a topology.")
    known = translate(error)
    if known is None or isinstance(error, OSError):
        log.error("fault while answering", exc_info=error)
        return problem(500, f"fault in the api server: {type(error).__name__}; its log says more")
    usage = isinstance(known, UsageError)
    return problem(code or known.http_status, known.message, known.cure, details=list(known.details), usage=usage)


def validation(error: RequestValidationError) -> Response:
    """The answer to arguments that make no sense."""
    faults = argument_faults(error)
    return problem(422, "; ".join(faults), details=faults)


def install_error_handlers(app: FastAPI) -> None:
    """Make the errors alike that come from outside any path of ours (those within: ``routing.AuthorizedRoute``)."""

    async def no_path(_: Request, error: Exception) -> Response:
        return error_response_for(error)

    app.add_exception_handler(HTTPException, no_path)
    app.add_exception_handler(Exception, no_path)
