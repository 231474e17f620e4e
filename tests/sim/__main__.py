"""Run one schedule (``python -m tests.sim --seed N [--verbose]``) or many (``--seeds A-B``) and report the outcome.

``--shrink`` first reduces a failing schedule. ``--hours H`` runs fresh seeds, and keeps those that break an invariant
or reach new states.
"""

from __future__ import annotations

import argparse
import sys
import time

from .corpus import explore
from .schedule import failure_text, run
from .shrink import Shrinker
from .simulation import Violation


def say(line: str) -> None:
    """Print a line to standard output and flush it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run the command; return 0 if every invariant held."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="one schedule")
    parser.add_argument("--seeds", help="A-B: all of them, B included")
    parser.add_argument("--verbose", action="store_true", help="print the trace")
    parser.add_argument("--shrink", action="store_true", help="of a seed that fails: leave out what is not needed")
    parser.add_argument("--hours", type=float, help="fresh seeds for so long; corpus.py says which are kept")
    arguments = parser.parse_args()
    if arguments.hours is not None:
        return 1 if explore(3600 * arguments.hours, say) else 0
    first, last = (arguments.seed, arguments.seed) if arguments.seeds is None else map(int, arguments.seeds.split("-"))
    if first is None:
        parser.error("give --seed, --seeds or --hours")
    failed = 0
    began = time.monotonic()
    for seed in range(first, last + 1):
        try:
            result = run(seed, say if arguments.verbose else None)
        except Violation as violation:
            failed += 1
            say(failure_text(seed, violation))
            if arguments.shrink:
                small = Shrinker(seed, violation).shrink()
                say(f"shrunk in {small.runs} runs to {small.cut}: {small.violation.law}")
                for line in small.violation.story:
                    say(line)
        else:
            if first == last:
                say(str(result))
    say(f"{last - first + 1 - failed} schedules held, {failed} broke a law, {time.monotonic() - began:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
