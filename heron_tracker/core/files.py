"""Log files as Heron's tracker shows them: a part of one as text, what a folder holds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from heron_runtime.failures import UsageError
from heron_runtime.wire.container import FileInfo

HERON_FOLDER = "log-files"


def path_below_logs(path: str) -> str:
    """Return a path relative to the log folder; empty for the folder. Raises UsageError.

    Heron's own scripts name the log folder ``./log-files``, with or without a slash at the end.
    """
    if any(0xD800 <= ord(c) <= 0xDFFF for c in path):
        raise UsageError("path: is not text")
    plain = path.removeprefix("./")
    return "" if plain in (HERON_FOLDER, ".") else plain.removeprefix(f"{HERON_FOLDER}/")


def whole_characters(data: bytes, *, last: bool) -> tuple[str, int]:
    """(text, bytes it takes): a character that is cut at the end is left for the next part, unless that is the end."""
    keep = len(data)
    if not last:
        for back in range(1, min(4, keep) + 1):
            byte = data[-back]
            if byte >= 0xC0:  # the first byte of a character of several
                needs = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
                keep -= back if needs > back and back < keep else 0
                break
            if byte < 0x80:
                break
    return data[:keep].decode(errors="replace"), keep


def file_shape(file: FileInfo) -> dict[str, Any]:
    """A file in the list of its folder."""
    when = datetime.fromtimestamp(file.modified_at, UTC)
    kind = "drwx------" if file.folder else "-rw-------"
    return {
        "path": file.path,
        "is_dir": file.folder,
        "size": file.size_bytes,
        "modified": when.isoformat(timespec="seconds"),
        "formatted_stat": f"{kind} {file.size_bytes:>12} {when:%Y-%m-%d %H:%M}",
    }
