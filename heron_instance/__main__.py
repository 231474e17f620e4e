"""``python -m heron_instance --launch FILE --container N --component NAME --task T --slot K --lifeline FD``."""

from __future__ import annotations

import argparse
import sys

from heron_instance.shell.main import run_instance
from heron_runtime.process import parse_arguments


def main() -> None:
    """Run the instance process, when it is executed instead of forked."""
    parser = argparse.ArgumentParser(prog="python -m heron_instance")
    parser.add_argument("--component", required=True, help="name of the component")
    parser.add_argument("--task", required=True, type=int, help="task id")
    arguments, options = parse_arguments("heron_instance", parser)
    sys.exit(
        run_instance(
            arguments.launch,
            arguments.container,
            options.component,
            options.task,
            arguments.slot,
            arguments.lifeline,
        )
    )


if __name__ == "__main__":
    main()
