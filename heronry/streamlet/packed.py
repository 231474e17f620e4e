"""Decompression of files of lines, and the byte order mark at their start: the same bytes for every engine.

Theory of operation. The suffix of a file's name determines its compression (.gz .bz2 .xz .zst). Readers of lines open
files here and see plain bytes. Offsets refer to plain bytes, so to continue in the middle requires decompressing
everything before. A compressed file is read by one task. It must not change once it is seen, even in a folder that
grows. Formats that no engine reads (.lz4, .zip) are rejected with the name of the file when it is listed, before
anything runs.
"""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import io
import lzma
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, cast

from heron_runtime.failures import listing

PACKED = (".gz", ".bz2", ".xz", ".zst")
REFUSED = (
    ".7z", ".br", ".deflate", ".lz", ".lz4", ".lzma", ".lzo", ".rar", ".snappy", ".sz", ".tar", ".tbz2", ".tgz", ".txz",
    ".z", ".zip",
)  # fmt: skip
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_NAMED = 5


class ReadError(ValueError):
    """Error for a file that cannot be read as declared.

    The message names the file and the line; ``reason`` does not.
    """

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason or text


def is_packed(name: str | Path) -> bool:
    """Return True if the name is that of a compressed file."""
    return str(name).lower().endswith(PACKED)


def refuse_unreadable(names: Iterable[str | Path]) -> None:
    """Check the names of files of lines.

    Raises:
        ReadError: Files have a compression that is not supported here. The message names them.
    """
    seen = [str(name) for name in names]
    refused = [name for name in seen if name.lower().endswith(REFUSED) or _is_archive(name)]
    if refused:
        raise ReadError(
            f"{listing(refused[:_MAX_NAMED])}: no engine reads files packed like that; pack them as "
            f"{', '.join(PACKED)}, or take them away (names that begin with . or _ are not read)"
        )
    zst = [name for name in seen if name.lower().endswith(".zst")]
    if zst and importlib.util.find_spec("pyarrow") is None:
        raise ReadError(
            f"{listing(zst[:_MAX_NAMED])}: .zst needs pyarrow, which is not installed: pip install 'heronry[archive]' "
            "(in the topology's requirements.txt, if it is submitted), or pack the files as .gz"
        )


def _is_archive(name: str) -> bool:
    """Return True for a compressed tar, which contains files rather than lines."""
    return is_packed(name) and Path(name).stem.lower().endswith(".tar")


def open_decompressed(file: BinaryIO, name: str) -> BinaryIO:
    """Return the plain bytes of a file that is open at its beginning.

    Reading from a damaged compressed file raises ReadError.
    """
    return cast(BinaryIO, io.BufferedReader(_Unpacked(file, name), 256 * 1024)) if is_packed(name) else file


def _unpacking(file: BinaryIO, end: str) -> BinaryIO:
    if end == ".gz":
        return cast(BinaryIO, gzip.open(file, "rb"))
    if end == ".bz2":
        return cast(BinaryIO, bz2.open(file, "rb"))
    if end == ".xz":
        return cast(BinaryIO, lzma.open(file, "rb"))
    import pyarrow

    return cast(BinaryIO, pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), "zstd"))


class _Unpacked(io.RawIOBase):
    """Compressed file, which is read forwards. Every error of its library becomes a ReadError that names the file."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._name, self._end = name, Path(name).suffix.lower()
        self._packed = file
        self._file = _unpacking(file, self._end)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: object) -> int:
        """Read plain bytes into the buffer. Return 0 at the end.

        Raises:
            ReadError: The file is truncated or damaged.
        """
        view = memoryview(cast(bytearray, buffer))
        try:
            data = self._file.read(len(view))
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            reason = (
                f"cannot be read as {self._end} ({error}): it is cut off or damaged; take it away, and "
                "give files their names when they are whole (names that begin with . or _ are not read)"
            )
            raise ReadError(f"{self._name} {reason}", reason) from error
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._file.close()
            self._packed.close()
        super().close()


def skip_to(file: BinaryIO, offset: int) -> None:
    """Move to an offset of the plain bytes. A compressed file is read up to there."""
    if file.seekable():
        file.seek(offset)
        return
    while offset > 0 and (data := file.read(min(offset, 1 << 20))):
        offset -= len(data)
