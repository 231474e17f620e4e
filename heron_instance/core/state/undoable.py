"""The state of a task alone, where a call of user code can be undone (``self.state`` of a bolt with dead letters)."""

from __future__ import annotations

import copy
from collections.abc import Iterator, MutableMapping
from typing import Any

_ABSENT = object()


class UndoableMapping(MutableMapping[Any, Any]):
    """A mapping whose changes since ``begin`` can be undone, those in place included: who looks at a value gets a copy,
    which takes its place. References to values must not outlive the call that read them."""

    def __init__(self) -> None:
        self._values: dict[Any, Any] = {}
        self._before: dict[Any, Any] | None = None

    def __getitem__(self, key: Any) -> Any:
        value = self._values[key]
        if self._before is not None and key not in self._before:
            self._before[key] = value
            value = self._values[key] = copy.deepcopy(value)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        self._remember(key)
        self._values[key] = value

    def __delitem__(self, key: Any) -> None:
        self._remember(key)
        del self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    def begin(self) -> None:
        """From here on changes can be undone."""
        self._before = {}

    def keep(self) -> None:
        """What has changed since ``begin`` stays."""
        self._before = None

    def undo(self) -> None:
        """Everything is as it was at ``begin``."""
        before, self._before = self._before or {}, None
        for key, value in before.items():
            if value is _ABSENT:
                self._values.pop(key, None)
            else:
                self._values[key] = value

    def _remember(self, key: Any) -> None:
        if self._before is not None and key not in self._before:
            self._before[key] = self._values.get(key, _ABSENT)
