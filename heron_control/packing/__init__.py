"""Packing: which task goes into which container, with what resources. Pure."""

from __future__ import annotations

from heron_control.packing.describe import describe
from heron_control.packing.errors import PackingError
from heron_control.packing.pack import PackingAlgorithm, pack

__all__ = ["PackingAlgorithm", "PackingError", "describe", "pack"]
