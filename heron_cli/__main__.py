"""The program ``heron``, also as ``python -m heron_cli``.

There is no garbage collection until the command is imported, and what was imported is left out of every later one: all
of it stays (``heron_cli.main.main``).
"""

import gc
import sys

from heron_cli.early import begin


def main() -> None:
    """Run the command line of this process; ends it with the exit code."""
    gc.disable()
    begin(sys.argv[1:])
    from heron_cli.main import main as command  # takes a while; what was begun goes on meanwhile

    command()


if __name__ == "__main__":
    main()
