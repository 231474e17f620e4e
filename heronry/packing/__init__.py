"""Packing: which task goes into which container, with what resources. Pure."""

from __future__ import annotations

from heronry.packing.describe import ContainerRow, InstanceRow, PlanDescription, describe
from heronry.packing.errors import PackingError
from heronry.packing.pack import ALGORITHMS, pack

__all__ = ["ALGORITHMS", "ContainerRow", "InstanceRow", "PackingError", "PlanDescription", "describe", "pack"]
