"""The merged answers of batch and online topology. See docs/explanation/spark.md; nothing here needs Spark.

view = read_view("clicks")
view.totals(key="home", from_ms=…)      # batch(< T) ⊕ online(≥ T)
view.buckets(), view.to_ms, view.promise
page(view, 100, Range(first="a")), top(view, 10), series(view, "home", 100)   # of large views, bounded
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
    """The view of this name (``heron pipeline views``), or in this folder, as it is at this moment.

    ``monoid``: the program's own, if it is none of the built-in ones. Reading needs pyarrow (``heronry[archive]``).
    Raises NoSuchView, ViewError.
    """
    folder = name if isinstance(name, Path) or "/" in name else registered(name, home).path
    return open_view(Path(folder), monoid)
