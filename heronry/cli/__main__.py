"""``python -m heronry.cli`` is ``heron``."""

from heronry.cli.main import main

if __name__ == "__main__":
    main()
