"""Merged views of batch and online topology. See docs/explanation/spark.md. Spark is not required.

view = read_view("clicks")
view.totals(key="home", from_ms=…)      # batch(< T) ⊕ online(≥ T)
view.buckets(), view.to_ms, view.promise
page(view, 100, Range(first="a")), top(view, 10), series(view, "home", 100)   # bounded queries of large views
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heronry.pipeline.questions import Page, Range, Series, Total, page, series, top
from heronry.pipeline.registry import registered
from heronry.pipeline.views import Answer, NoSuchView, View, ViewError, open_view
from heronry.streamlet.monoid import Monoid

__all__ = [
    "Answer", "NoSuchView", "Page", "Range", "Series", "Total", "View", "ViewError", "page", "read_view", "series",
    "top",
]  # fmt: skip


def read_view(name: str | Path, *, monoid: Monoid[Any, Any] | None = None, home: Path | None = None) -> View:
    """Open a view in its present state.

    Args:
        name: Name of a registered view (``heron pipeline views``), or the path of its folder.
        monoid: The program's own monoid, if it is not a built-in one.
        home: Folder of the registry; defaults to HERONRY_HOME or the user's data folder.

    Returns:
        The view. Reading it requires pyarrow (``heronry[archive]``).

    Raises:
        NoSuchView: The view does not exist.
        ViewError: The view cannot be read.
    """
    folder = name if isinstance(name, Path) or "/" in name else registered(name, home).path
    return open_view(Path(folder), monoid)
