"""What may be a path and a value, the same in every store."""

from __future__ import annotations

from collections.abc import Sequence

from heron_runtime.failures import UsageError
from heron_runtime.state.store import Create, Operation, Set, StoreError, ValueTooLarge

MAX_SEGMENT_BYTES = 255
MAX_SEGMENTS = 3
MAX_VALUE_BYTES = 16 * 1024 * 1024
MAX_OPERATIONS = 1024


class InvalidPath(StoreError, UsageError, ValueError):
    """The path can be no node's path."""


def _segments(path: str) -> list[str]:
    if not path.startswith("/"):
        raise InvalidPath(f"{path!r}: a path begins with '/', as /topologies/word_count")
    segments = path[1:].split("/")
    for segment in segments:
        if not segment or segment in (".", ".."):
            raise InvalidPath(f"{path!r}: empty parts, '.' and '..' are not allowed")
        if not segment.isprintable():
            raise InvalidPath(f"{path!r}: control characters are not allowed")
        try:
            size = len(segment.encode())
        except UnicodeEncodeError:
            raise InvalidPath(f"{path!r}: not valid text") from None
        if size > MAX_SEGMENT_BYTES:
            raise InvalidPath(f"{path[:64]!r}…: a part has at most {MAX_SEGMENT_BYTES} bytes")
    return segments


def check_node(path: str) -> str:
    """``path`` if it is ``/kind/name`` or ``/kind/name/which``. Raises InvalidPath."""
    if len(_segments(path)) not in (2, MAX_SEGMENTS):
        raise InvalidPath(f"{path!r}: a node's path is /kind/name or /kind/name/which")
    return path


def check_folder(path: str) -> str:
    """``path`` if it is that of a node, or ``/kind``. Raises InvalidPath."""
    if len(_segments(path)) > MAX_SEGMENTS:
        raise InvalidPath(f"{path!r}: a path is /kind, /kind/name or /kind/name/which")
    return path


def check_operations(operations: Sequence[Operation]) -> None:
    """Raises InvalidPath for a bad path, ValueTooLarge for a value, StoreError for a transaction that is too large."""
    if len(operations) > MAX_OPERATIONS:
        raise StoreError(f"a transaction has at most {MAX_OPERATIONS} operations, this one {len(operations)}")
    for operation in operations:
        check_node(operation.path)
        if isinstance(operation, (Create, Set)) and len(operation.data) > MAX_VALUE_BYTES:
            raise ValueTooLarge(
                f"{operation.path}: a value has at most {MAX_VALUE_BYTES} bytes, this one {len(operation.data)}",
                "Keep large data out of the topology's configuration: in files of its package.",
            )


def parent(path: str) -> str:
    """``/kind`` of ``/kind/name``, ``/kind/name`` of ``/kind/name/which``."""
    return path.rsplit("/", 1)[0]
