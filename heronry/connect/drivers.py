"""The client libraries of connectors, which only those who use them have."""

from __future__ import annotations

import importlib
from typing import Any

from heron_runtime.failures import one_line
from heronry.connect.settings import ConnectError


def driver(module: str, system: str, package: str, extra: str, error: type[Exception] = ConnectError) -> Any:
    """The module of a client. ``system``: what it is for; ``package``: what has it; ``extra``: ours that brings it.

    Raises ``error``."""
    try:
        return importlib.import_module(module)
    except ImportError as cause:
        raise error(
            f"{system} needs {package}, which is not there ({one_line(str(cause), 200)}): name {package} in the "
            f"topology's requirements, or on each host: pip install 'heronry[{extra}]'"
        ) from None


def arrow_driver(system: str, extra: str, error: type[Exception] = ConnectError) -> tuple[Any, Any]:
    """pyarrow, and its Parquet. Raises ``error``."""
    arrow, parquet = (driver(name, system, "pyarrow", extra, error) for name in ("pyarrow", "pyarrow.parquet"))
    return arrow, parquet
