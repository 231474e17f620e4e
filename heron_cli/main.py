"""The ``heron`` command: its sub-commands, and what happens when one of them fails.

A sub-command is a function in a file of its own that raises ``Failure``, or what ``translate`` knows. ``guarded``
turns that into words on stderr and an exit code; a Python traceback is shown with ``--verbose`` only.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import typer

from heron_cli import activate, config, doctor, kill, login, logs, metrics, restart, status, submit, tracker, version
from heron_cli import list as list_command
from heron_cli import pipeline as pipeline_commands
from heron_cli.console import is_verbose, say, show_error
from heron_runtime.failures import Interrupted
from heron_runtime.net.foreign import translate

app = typer.Typer(
    name="heron",
    help="Submit topologies to a cluster, watch them, and end them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with its errors as words and exit codes."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
            sys.stdout.flush()
        except typer.Exit:
            raise  # somebody else has said why
        except KeyboardInterrupt:
            show_error(Interrupted("interrupted"))
            raise typer.Exit(Interrupted.exit_code) from None
        except BrokenPipeError:
            # Whoever read our output has enough of it. Python must not complain about that at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except Exception as error:
            known = translate(error)
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


_COMMANDS: tuple[tuple[str, Callable[..., None]], ...] = (
    ("submit", submit.submit),
    ("kill", kill.kill),
    ("activate", activate.activate),
    ("deactivate", activate.deactivate),
    ("restart", restart.restart),
    ("list", list_command.list_topologies),
    ("status", status.status),
    ("logs", logs.logs),
    ("metrics", metrics.metrics),
    ("config", config.config),
    ("login", login.login),
    ("logout", login.logout),
    ("tracker", tracker.tracker),
    ("version", version.version),
    ("doctor", doctor.doctor),
)
for _name, _command in _COMMANDS:
    app.command(_name)(guarded(_command))

_pipeline = typer.Typer(help="Batches on Spark for merged views, and what is known of them.", no_args_is_help=True)
for _name, _command in pipeline_commands.COMMANDS:
    _pipeline.command(_name)(guarded(_command))
app.add_typer(_pipeline, name="pipeline")


def main() -> None:
    """Run the command line of this process; ends it with the exit code."""
    # What the state store or gRPC logs goes to stderr, warnings and worse only.
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s", stream=sys.stderr)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    app(prog_name="heron")
