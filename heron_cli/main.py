"""The ``heron`` command: its sub-commands, and what happens when one of them fails.

A sub-command is a function in a file of its own that raises ``Failure``, or what ``to_failure`` knows. ``guarded``
turns that into words on stderr and an exit code; a Python traceback is shown with ``--verbose`` only. A command
imports itself alone: to import all of them takes a third more.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable
from typing import Any

import typer

from heron_cli.behind_dashes import BehindDashes
from heron_cli.console import is_verbose, say, show_error
from heron_runtime.failures import Interrupted, to_failure

_COMMANDS = {
    "submit": "heron_cli.submit:submit",
    "kill": "heron_cli.kill:kill",
    "activate": "heron_cli.activate:activate",
    "deactivate": "heron_cli.activate:deactivate",
    "restore": "heron_cli.checkpoint:restore",
    "update": "heron_cli.update:update",
    "move": "heron_cli.update:move",
    "restart": "heron_cli.restart:restart",
    "list": "heron_cli.list:list_topologies",
    "status": "heron_cli.status:status",
    "logs": "heron_cli.logs:logs",
    "metrics": "heron_cli.metrics:metrics",
    "config": "heron_cli.config:config",
    "login": "heron_cli.login:login",
    "logout": "heron_cli.login:logout",
    "tracker": "heron_cli.tracker:tracker",
    "version": "heron_cli.version:version",
    "doctor": "heron_cli.doctor:doctor",
}


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with its errors as words and exit codes."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
            sys.stdout.flush()
        except typer.Exit:
            raise  # somebody else has said why
        except (KeyboardInterrupt, typer.Abort):  # a prompt turns Ctrl-C and the end of input into Abort
            show_error(Interrupted("interrupted"))
            raise typer.Exit(Interrupted.exit_code) from None
        except BrokenPipeError:
            # Whoever read our output has enough of it. Python must not complain about that at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except Exception as error:
            known = to_failure(error)
            if known is None:
                _report_fault(error)
                raise typer.Exit(1) from None
            if is_verbose():
                traceback.print_exception(error)
            show_error(known)
            raise typer.Exit(known.exit_code) from None

    return run


def _report_fault(error: Exception) -> None:
    if is_verbose():
        traceback.print_exception(error)
    say(f"heron: fault in Heronry: {type(error).__name__}: {error}", "bold red")
    if not is_verbose():
        say("Run the command again with --verbose to see where; please report it.")


def make_app(only: str = "") -> typer.Typer:
    """The program, with every sub-command; or, if ``only`` is the name of one, with that one alone."""
    app = typer.Typer(
        name="heron",
        help="Submit topologies to a cluster, watch them, and end them.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    if only in _COMMANDS:
        app.callback()(lambda: None)  # else a single command would be the program itself
    for name in [only] if only in _COMMANDS else _COMMANDS:
        kind = BehindDashes if name == "submit" else None
        app.command(name, cls=kind)(guarded(pkgutil.resolve_name(_COMMANDS[name])))
    if only not in _COMMANDS:
        pipeline = typer.Typer(
            help="Batches on Spark for merged views; the history of topologies, and what it advises.",
            no_args_is_help=True,
        )
        token = typer.Typer(help="Who may use a cluster behind an api server.", no_args_is_help=True)
        checkpoint = typer.Typer(help="Checkpoints of a topology that keeps state.", no_args_is_help=True)
        spark = typer.Typer(
            help="A Spark that is kept warm, or starts faster, so that jobs start sooner.", no_args_is_help=True
        )
        groups = ((pipeline, "pipeline"), (spark, "spark"), (token, "token"), (checkpoint, "checkpoint"))
        for group, name in groups:
            for verb, command in pkgutil.resolve_name(f"heron_cli.{name}:COMMANDS"):
                group.command(verb)(guarded(command))
            app.add_typer(group, name=name)
    return app


def main() -> None:
    """Run the command line of this process; ends it with the exit code."""
    os.umask(os.umask(0o022) | 0o022)  # nothing that this command writes or starts is for others to write
    # What the state store or gRPC logs goes to stderr, warnings and worse only.
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s", stream=sys.stderr)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    app = make_app(sys.argv[1] if len(sys.argv) > 1 else "")
    gc.freeze()
    gc.enable()
    try:
        app(prog_name="heron")
    finally:
        gc.freeze()  # the end of the process frees everything; nobody need look for what could go
