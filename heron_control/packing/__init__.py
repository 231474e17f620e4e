"""Packing: assignment of tasks to containers with their resources. Pure."""

from __future__ import annotations

from heron_control.packing.algorithms import PackingAlgorithm, pack
from heron_control.packing.demand import PackingError
from heron_control.packing.describe import describe

__all__ = ["PackingAlgorithm", "PackingError", "describe", "pack"]
