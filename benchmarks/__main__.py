"""Run one benchmark case: ``python -m benchmarks wordcount --acks --seconds 10 --json -``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks import state
from benchmarks.run import Options, TuplesLost, run


def main() -> int:
    """Run one case and print its figures; ``state`` runs ``benchmarks.state``."""
    if sys.argv[1:2] == ["state"]:
        del sys.argv[1]
        state.main()
        return 0
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("case", choices=["wordcount", "rtac", "fanout", "payload", "idle"])
    parser.add_argument("--acks", action="store_true", help="at least once (default: at most once)")
    parser.add_argument("--tasks", type=int, default=1, help="tasks of each component")
    parser.add_argument("--containers", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0, help="tuples/s over all spouts, open loop; 0: flat out")
    parser.add_argument("--seconds", type=float, default=10, help="length of the measured window")
    parser.add_argument("--bolt", choices=["process", "batch"], default="process", help="how the counter takes tuples")
    parser.add_argument("--size", type=int, default=100, help="bytes of a tuple (payload only)")
    parser.add_argument("--branches", type=int, default=4, help="bolts that read the spout (fanout only)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=JSON", help="a topology.* or heron.* setting"
    )
    parser.add_argument("--json", metavar="FILE", help="write the figures there (- for standard output)")
    options = parser.parse_args()
    overrides = {key: json.loads(value) for key, value in (item.split("=", 1) for item in options.set)}
    try:
        figures = run(
            Options(
                options.case, options.acks, options.tasks, options.containers, options.rate, options.seconds,
                options.bolt, options.size, options.branches, overrides,
            )
        )  # fmt: skip
    except TuplesLost as error:
        print(f"tuples lost: {error}", file=sys.stderr)
        return 1
    text = json.dumps(figures, indent=1)
    if options.json and options.json != "-":
        Path(options.json).write_text(text + "\n")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
