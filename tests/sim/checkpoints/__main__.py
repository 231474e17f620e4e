"""Run schedules (``python -m tests.sim.checkpoints --seeds A-B [--engine] [--verbose]``) and report the outcome."""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter

from .engine import EngineTask
from .outside import Violation
from .simulation import run
from .tasks import Task


def main() -> int:
    """Run the command; return 0 if every invariant held."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.checkpoints", description=__doc__)
    parser.add_argument("--seeds", required=True, help="A-B, or one seed")
    parser.add_argument("--verbose", action="store_true", help="print what happens")
    parser.add_argument("--engine", action="store_true", help="with the production executors")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)  # the program contains bad records
    first, _, last = arguments.seeds.partition("-")

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")

    failed, counts = 0, Counter[str]()
    for seed in range(int(first), int(last or first) + 1):
        try:
            counts.update(run(seed, say if arguments.verbose else None, EngineTask if arguments.engine else Task))
        except Violation as violation:
            failed += 1
            say(f"seed {seed}: {violation}")
    say(f"{failed} broke a law; {', '.join(f'{count} {name}' for name, count in sorted(counts.items()))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
