"""Why a topology cannot be packed."""

from __future__ import annotations

from heron_runtime.failures import InvalidTopology


class PackingError(InvalidTopology, ValueError):
    """No packing plan meets the limits. The message names the component and the setting that stand in the way."""
