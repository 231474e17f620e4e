"""``python -m tests.sim --seed N [--verbose]``: run one schedule, or ``--seeds A-B`` many, and tell what happened."""

from __future__ import annotations

import argparse
import sys
import time

from .schedule import failure_text, run
from .world import Violation


def main() -> int:
    """0 if every law held."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="one schedule")
    parser.add_argument("--seeds", help="A-B: all of them, B included")
    parser.add_argument("--verbose", action="store_true", help="print the trace")
    arguments = parser.parse_args()
    first, last = (arguments.seed, arguments.seed) if arguments.seeds is None else map(int, arguments.seeds.split("-"))
    if first is None:
        parser.error("give --seed or --seeds")

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")

    failed = 0
    began = time.monotonic()
    for seed in range(first, last + 1):
        try:
            result = run(seed, say if arguments.verbose else None)
        except Violation as violation:
            failed += 1
            say(failure_text(seed, violation))
        else:
            if first == last:
                say(str(result))
    say(f"{last - first + 1 - failed} schedules held, {failed} broke a law, {time.monotonic() - began:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
