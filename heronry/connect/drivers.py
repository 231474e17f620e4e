"""The client libraries of connectors, which only those who use them have."""

from __future__ import annotations

import importlib
from typing import Any

from heron_runtime.failures import one_line
from heronry.connect.settings import ConnectError


def driver(module: str, system: str, package: str, extra: str) -> Any:
    """The module of a client. ``system``: what it is for; ``package``: what has it; ``extra``: ours that brings it.

    Raises ConnectError."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConnectError(
            f"{system} needs {package}, which is not there ({one_line(str(error), 200)}): name {package} in the "
            f"topology's requirements, or on each host: pip install 'heronry[{extra}]'"
        ) from None


def arrow_driver(system: str, extra: str) -> tuple[Any, Any]:
    """pyarrow, and its Parquet. Raises ConnectError."""
    arrow, parquet = (driver(name, system, "pyarrow", extra) for name in ("pyarrow", "pyarrow.parquet"))
    return arrow, parquet
