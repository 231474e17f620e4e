"""What stands behind ``--`` belongs to the user's program, however many of our own arguments stand before it.

click takes ``--`` for the end of the options alone: an argument behind it fills the first of ours that was left out,
so that in ``submit local words.py -- data`` the data would be the name of the topology.
"""

from __future__ import annotations

from typing import Any

import typer.core


class BehindDashes(typer.core.TyperCommand):
    """A command whose ``arguments`` end with all that stands behind the first ``--``, untouched."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Ours before the dashes, the program's behind them."""
        cut = args.index("--") if "--" in args else len(args)
        theirs = args[cut + 1 :]
        rest = super().parse_args(ctx, args[:cut])
        ctx.params["arguments"] = [*(ctx.params.get("arguments") or ()), *theirs]
        return rest
