"""What a tar header may ask for, before tarfile does it.

tarfile reads *extended headers* (long names, pax records) whole, keeps those of an entry on its stack, a call for
each, and those for all entries for ever. So their sizes, how many belong to one entry, and what all of them take are
bounded here, on each block of 512 bytes as it is read.
"""

from __future__ import annotations

import io
import tarfile
from typing import IO, Self

from heronry.api.errors import PackageError

HEADER_BYTES = 64 * 1024  # of one extended header, and of those for all entries together
HEADERS_OF_ENTRY = 8
HEADERS_BYTES = 128 << 20  # of all of them, blocks included, which bounds their number, too
_EXTENDED = (
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE,
)  # fmt: skip


def bounded_header(source: str) -> type[tarfile.TarInfo]:
    """The class of the headers of one archive; ``source`` names that in a PackageError."""
    of_entry = of_all = in_all = 0

    class Header(tarfile.TarInfo):
        """Raises PackageError where a bound is broken."""

        __slots__ = ()

        @classmethod
        def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
            """tarfile calls it for every block that is a header."""
            nonlocal of_entry, of_all, in_all
            header = super().frombuf(buf, encoding, errors)
            if header.type not in _EXTENDED:
                of_entry = 0
                return header
            of_entry += 1
            in_all += tarfile.BLOCKSIZE + header.size
            of_all += header.size if header.type == tarfile.XGLTYPE else 0
            if max(header.size, of_all) > HEADER_BYTES:
                raise PackageError(
                    f"{source} holds a header of {max(header.size, of_all)} bytes; {HEADER_BYTES} is the most"
                )
            if of_entry > HEADERS_OF_ENTRY:
                raise PackageError(f"{source} holds an entry with more than {HEADERS_OF_ENTRY} headers")
            if in_all > HEADERS_BYTES:
                raise PackageError(f"the headers in {source} take more than {HEADERS_BYTES} bytes")
            return header

    return Header


class BoundedReader(io.RawIOBase):
    """What tarfile reads: nothing large at a time, no more in all than the limits account for."""

    def __init__(self, stream: IO[bytes], source: str, total_bytes: int, most_at_a_time: int) -> None:
        super().__init__()
        self._stream = stream
        self._source = source
        self._at_a_time = most_at_a_time
        self._most = 2 * total_bytes + most_at_a_time

    def read(self, size: int = -1) -> bytes:
        """Raises PackageError beyond a bound."""
        if size < 0 or size > self._at_a_time:
            raise PackageError(f"{self._source} holds a header of {size} bytes")
        self._check(self._stream.tell() + size)
        return self._stream.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Raises PackageError beyond a bound."""
        if whence == io.SEEK_SET:
            self._check(offset)
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """Where it is."""
        return self._stream.tell()

    def seekable(self) -> bool:
        """Yes."""
        return True

    def readable(self) -> bool:
        """Yes."""
        return True

    def _check(self, position: int) -> None:
        if not 0 <= position <= self._most:
            raise PackageError(f"{self._source} unpacks to more than {self._most} bytes")
