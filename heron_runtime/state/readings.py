"""Reading nodes of which some may not be read, or say nothing that can be understood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heron_runtime.state.store import Node, StateStore, StoreError, StoreUnavailable
from heron_runtime.wire.errors import MalformedMessage


class DamagedNode(StoreError):
    """A node holds data that this version cannot decode."""


def read_each(store: StateStore, paths: Sequence[str]) -> Sequence[Node | StoreError | None]:
    """As the store's ``get_all``, but a node that may not be read fails alone. Raises StoreUnavailable."""

    def alone(path: str) -> Node | StoreError | None:
        try:
            return store.get(path)
        except StoreUnavailable:
            raise
        except StoreError as error:
            return error

    try:
        return store.get_all(paths)
    except StoreUnavailable:
        raise
    except StoreError:
        return [alone(path) for path in paths]


def decoded(path: str, node: Node | StoreError | None, codec: Any) -> Any:
    """What ``node`` says; None if it is not there. Raises DamagedNode, and the StoreError that it is."""
    if isinstance(node, StoreError):
        raise node
    if node is None:
        return None
    try:
        return codec.decode(node.data)
    except MalformedMessage as error:
        raise DamagedNode(f"{path} cannot be read: {error}. Was it written by another version?") from error
