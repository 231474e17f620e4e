"""``python -m heron_tracker``: serves REST and the web page until it is asked to stop."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from heron_control.web.serving import exit_code, port
from heron_runtime.model.ids import is_safe_name
from heron_tracker.shell.server import Options, serve


def _named(advice: str) -> Callable[[str], tuple[str, str]]:
    """A parser of NAME=VALUE; ``advice`` says what to write."""

    def parsed(text: str) -> tuple[str, str]:
        name, separator, value = text.partition("=")
        if not separator or not value or not is_safe_name(name):
            raise argparse.ArgumentTypeError(f"{text!r}: write {advice}")
        return name, value

    return parsed


def parse(arguments: Sequence[str] | None = None) -> Options:
    """The options of a command line. Ends the process on a mistake (exit code 2)."""
    parser = argparse.ArgumentParser(
        prog="python -m heron_tracker", description="REST over everything that runs, and a web page."
    )
    parser.add_argument("--port", type=port, default=8888, help="0 picks a free one (default 8888)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument(
        "--cluster", action="append", type=_named("NAME=STORE_URL, as local=files:///home/me/heronry/state"),
        default=[], metavar="NAME=STORE_URL",
        help="a cluster to follow, may be repeated (default: local, in the home)",
    )  # fmt: skip
    parser.add_argument(
        "--store-credential", action="append", type=_named("NAME=FILE, as docker=/run/secrets/reader"), default=[],
        metavar="NAME=FILE",
        help="a file of mode 0400 with the credential of that cluster's store; a reader's is enough",
    )  # fmt: skip
    parser.add_argument("--home", type=Path, help="where the local cluster is (default HERONRY_HOME)")
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="a host name that requests may use beside localhost and 127.0.0.1, may be repeated",
    )  # fmt: skip
    parser.add_argument("--verbose", action="store_true", help="log requests")
    given = parser.parse_args(arguments)
    return Options(
        given.host,
        given.port,
        tuple(given.cluster),
        tuple(given.store_credential),
        given.home,
        tuple(given.allow_host),
        verbose=given.verbose,
    )


def main() -> None:
    """Entry point."""
    sys.exit(exit_code(lambda: serve(parse()), "heron_tracker"))


if __name__ == "__main__":
    main()
