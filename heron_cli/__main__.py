"""The program ``heron``, also as ``python -m heron_cli``."""

import sys

from heron_cli.early import begin


def main() -> None:
    """Run the command line of this process; ends it with the exit code."""
    begin(sys.argv[1:])
    from heron_cli.main import main as command  # takes a while; what was begun goes on meanwhile

    command()


if __name__ == "__main__":
    main()
