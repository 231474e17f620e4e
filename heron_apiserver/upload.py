"""Parser of submit requests: fields and definition into memory, the package straight to disk.

The multipart/form-data body is parsed while it arrives. Everything is limited: the number of parts, each text, the
definition, the package, the time without a byte and the total time. File names sent by clients are ignored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool

from heron_apiserver.packages import IncomingPackage
from heron_apiserver.submit_request import FILES
from heron_control.web.guard import TooLarge
from heron_runtime.failures import InvalidTopology

MAX_PARTS = 24
MAX_NAME_BYTES = 64
MAX_TEXT_BYTES = 64 * 1024
MAX_HEADER_BYTES = 4 * 1024
MAX_DEFINITION_BYTES = 4 << 20
PACKAGE, DEFINITION = "topology", "definition"


@dataclass
class SubmitForm:
    """Parsed request. ``package`` is on disk; the owner of the form discards it."""

    fields: dict[str, str] = field(default_factory=dict)
    definition: bytes | None = None
    package: IncomingPackage | None = None

    @property
    def files(self) -> set[str]:
        """Return the names of the files received."""
        names = {DEFINITION} if self.definition is not None else set()
        return names | ({PACKAGE} if self.package is not None else set())

    def discard(self) -> None:
        """Delete the package from the uploads, if it is still there."""
        if self.package is not None:
            self.package.discard()


async def receive_form(
    request: Request, form: SubmitForm, incoming: Callable[[], IncomingPackage], max_package_bytes: int
) -> None:
    """Read the whole body into ``form``. Raises InvalidTopology, TooLarge, OSError and errors of the stream."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not 0 < len(boundary) <= 200:
        raise InvalidTopology("a submit request must be multipart/form-data", "See /docs, or use `heron submit`.")
    reader = _Reader(form, incoming, max_package_bytes)
    parser = MultipartParser(boundary, reader.callbacks())  # type: ignore[arg-type]  # a plain dict of its callbacks
    try:
        async for chunk in _chunks(request):
            # On a thread, because disk and hash take time.
            await run_in_threadpool(parser.write, chunk)
        parser.finalize()
    except FormParserError as error:
        raise InvalidTopology(f"the body is not multipart/form-data: {error}") from None
    if not reader.complete:
        raise InvalidTopology("the body ends in the middle of a part")


async def _chunks(request: Request) -> AsyncIterator[bytes]:
    async for chunk in request.stream():
        if chunk:
            yield chunk


class _Reader:
    """Callbacks of the multipart parser: decide for each part where its bytes go."""

    def __init__(self, form: SubmitForm, incoming: Callable[[], IncomingPackage], max_package_bytes: int) -> None:
        self._form = form
        self._incoming = incoming
        self._max_package_bytes = max_package_bytes
        self._header = bytearray()
        self._value = bytearray()
        self._name = ""
        self._data = bytearray()
        self._parts = 0
        self._headers = 0
        self._seen: set[str] = set()
        self.complete = False

    def callbacks(self) -> dict[str, Callable[..., None]]:
        """Return the callbacks by their names in the parser."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._grow(self._header, data[start:end]),
            "on_header_value": lambda data, start, end: self._grow(self._value, data[start:end]),
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_part_data": self._part_data,
            "on_part_end": self._end,
            "on_end": self._over,
        }

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise TooLarge(f"a submit request has at most {MAX_PARTS} parts")
        self._name, self._headers = "", 0
        self._data.clear()

    def _grow(self, target: bytearray, data: bytes) -> None:
        self._headers += len(data)
        if self._headers > MAX_HEADER_BYTES:
            raise TooLarge(f"the headers of a part have at most {MAX_HEADER_BYTES} bytes")
        target += data

    def _header_end(self) -> None:
        if bytes(self._header).lower() == b"content-disposition":
            name = parse_options_header(bytes(self._value))[1].get(b"name", b"")
            self._name = name.decode("utf-8", "replace")
        self._header.clear()
        self._value.clear()

    def _headers_finished(self) -> None:
        if not self._name or len(self._name) > MAX_NAME_BYTES:
            raise InvalidTopology("the name of a part is missing or too long")
        if self._name in self._seen:
            raise InvalidTopology(f"duplicate field {self._name!r}")
        self._seen.add(self._name)
        if self._name == PACKAGE:
            self._form.package = self._incoming()

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._name == PACKAGE:
            assert self._form.package is not None
            if self._form.package.size + end - start > self._max_package_bytes:
                raise TooLarge(f"a package has at most {self._max_package_bytes} bytes (compressed)")
            self._form.package.write(data[start:end])
            return
        most = MAX_DEFINITION_BYTES if self._name == DEFINITION else MAX_TEXT_BYTES
        if len(self._data) + end - start > most:
            raise TooLarge(f"the field {self._name!r} has at most {most} bytes")
        self._data += data[start:end]

    def _end(self) -> None:
        if self._name == DEFINITION:
            self._form.definition = bytes(self._data)
        elif self._name not in FILES:
            self._form.fields[self._name] = self._data.decode("utf-8", "replace")

    def _over(self) -> None:
        self.complete = True
