"""A plugin of pytest: what comes with Spark cannot be imported, as on a machine that has none of it.

The fast group gives it (``-p tests.without_spark``) to all tests but those that say they need these libraries. So it
is seen at once when another test, or the code that it tests, comes to need them, though they are there.
"""

from __future__ import annotations

import sys

#: What deploy/spark-setup brings.
LIBRARIES = ("pyspark", "py4j", "pyarrow", "pandas", "duckdb", "deltalake", "pyiceberg", "sqlalchemy")


def pytest_configure() -> None:
    """To import one of them raises ModuleNotFoundError, and ``find_spec`` finds none, from now on in this process."""
    sys.modules.update(dict.fromkeys(LIBRARIES))  # type: ignore[arg-type]  # None is Python's word for it
