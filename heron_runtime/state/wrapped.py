"""A store in front of another one: it passes on whatever it does not do its own way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heron_runtime.state.store import Node, Operation, SessionState, StateStore


class WrappedStore:
    """As ``store``. See ``StateStore``."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def open(self) -> None:
        """As the store's."""
        self._store.open()

    def close(self) -> None:
        """As the store's."""
        self._store.close()

    def get(self, path: str) -> Node | None:
        """As the store's."""
        return self.get_all((path,))[0]

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """As the store's."""
        return self._store.get_all(paths)

    def children(self, path: str) -> list[str]:
        """As the store's."""
        return self._store.children(path)

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        """As the store's."""
        return self._store.commit(operations)

    def watch(self, path: str, changed: Callable[[str], None]) -> Callable[[], None]:
        """As the store's."""
        return self._store.watch(path, changed)

    def on_session(self, changed: Callable[[SessionState], None]) -> Callable[[], None]:
        """As the store's."""
        return self._store.on_session(changed)

    def session(self) -> SessionState:
        """As the store's."""
        return self._store.session()
