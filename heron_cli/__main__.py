"""``python -m heron_cli`` is ``heron``."""

from heron_cli.main import main

if __name__ == "__main__":
    main()
