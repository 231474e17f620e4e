"""The version of Heronry that runs."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("heronry")
except PackageNotFoundError:  # a source tree that was never installed
    VERSION = "0+unknown"
