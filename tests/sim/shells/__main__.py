"""Run schedules of production shells (``python -m tests.sim.shells SEED…``) with their logs."""

from __future__ import annotations

import logging
import sys

from ..simulation import Violation
from .schedule import run


def main() -> int:
    """Run the command; return 1 if an invariant is broken."""
    logging.basicConfig(level=logging.DEBUG, format="%(name)s %(message)s")
    broken = 0
    for seed in map(int, sys.argv[1:]):
        try:
            print(seed, run(seed))
        except Violation as violation:
            broken += 1
            print(f"seed {seed}: {violation.law}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
