"""Progress messages of long operations."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str], None]  # shows the current step


def silent(_: str) -> None:
    """Discard a progress message."""
