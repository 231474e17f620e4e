"""Why a topology cannot be packed."""

from __future__ import annotations


class PackingError(ValueError):
    """No packing plan meets the limits. The message names the component and the setting that stand in the way."""
