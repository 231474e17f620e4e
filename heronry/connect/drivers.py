"""Import of the connectors' optional client libraries."""

from __future__ import annotations

import importlib
from typing import Any

from heron_runtime.failures import one_line
from heronry.connect.settings import ConnectError


def driver(module: str, system: str, package: str, extra: str, error: type[Exception] = ConnectError) -> Any:
    """Import a client library's module.

    Args:
        module: Name of the module.
        system: Name of the system it is for, for messages.
        package: Name of the package that contains the module.
        extra: Extra of heronry that installs the package.
        error: Class of the exception to raise if the import fails.

    Returns:
        The module.

    Raises:
        ConnectError: The module cannot be imported. ``error`` replaces this class.
    """
    try:
        return importlib.import_module(module)
    except ImportError as cause:
        raise error(
            f"{system} needs {package}, which cannot be imported ({one_line(str(cause), 200)}): name {package} in the "
            f"topology's requirements, or on each host: pip install 'heronry[{extra}]'"
        ) from None


def arrow_driver(system: str, extra: str, error: type[Exception] = ConnectError) -> tuple[Any, Any]:
    """Import pyarrow and pyarrow.parquet. Raises ``error`` if they cannot be imported."""
    arrow, parquet = (driver(name, system, "pyarrow", extra, error) for name in ("pyarrow", "pyarrow.parquet"))
    return arrow, parquet
