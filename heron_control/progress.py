"""How work that takes a while tells what it is doing."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str], None]  # shows what goes on


def silent(_: str) -> None:
    """Shows nothing."""
