"""The application ``heron``: the table of its commands, the report of their errors, and its entry point.

A command is a function of ``heron_cli.commands`` that raises ``Failure`` or an exception that ``translate`` knows. A
command line imports its own command only, since importing all of them takes much longer.
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
import typer.core

from heron_cli.console import is_verbose, print_message, show_error
from heron_runtime.failures import Interrupted
from heron_runtime.net.foreign import translate

_COMMANDS = {
    "submit": "heron_cli.commands.submit:submit",
    "kill": "heron_cli.commands.lifecycle:kill",
    "activate": "heron_cli.commands.lifecycle:activate",
    "deactivate": "heron_cli.commands.lifecycle:deactivate",
    "restore": "heron_cli.commands.checkpoint:restore",
    "update": "heron_cli.commands.lifecycle:update",
    "move": "heron_cli.commands.lifecycle:move",
    "restart": "heron_cli.commands.lifecycle:restart",
    "list": "heron_cli.commands.status:list_topologies",
    "status": "heron_cli.commands.status:status",
    "logs": "heron_cli.commands.logs:logs",
    "metrics": "heron_cli.commands.status:metrics",
    "config": "heron_cli.commands.config:config",
    "login": "heron_cli.commands.access:login",
    "logout": "heron_cli.commands.access:logout",
    "tracker": "heron_cli.commands.tracker:tracker",
    "version": "heron_cli.commands.doctor:version",
    "doctor": "heron_cli.commands.doctor:doctor",
}
_GROUPS = {
    "pipeline": "Run batches of merged views on Spark, query views, and analyze the history of topologies.",
    "spark": "Keep Spark warm, or speed up its start.",
    "token": "Manage the tokens of a cluster with an API server.",
    "checkpoint": "Manage the checkpoints of a topology with state.",
}
_GROUP_COMMANDS = {
    "pipeline run": "heron_cli.commands.view_batches:run",
    "pipeline backfill": "heron_cli.commands.view_batches:backfill",
    "pipeline schedule": "heron_cli.commands.view_batches:schedule",
    "pipeline status": "heron_cli.commands.views:status",
    "pipeline views": "heron_cli.commands.views:list_views",
    "pipeline keys": "heron_cli.commands.views:keys",
    "pipeline top": "heron_cli.commands.views:show_top",
    "pipeline series": "heron_cli.commands.views:show_series",
    "pipeline roll-up": "heron_cli.commands.history:roll_up",
    "pipeline history": "heron_cli.commands.history:history",
    "pipeline advise": "heron_cli.commands.history:advise",
    "spark start": "heron_cli.commands.spark:start",
    "spark stop": "heron_cli.commands.spark:stop",
    "spark status": "heron_cli.commands.spark:status",
    "spark prepare": "heron_cli.commands.spark:prepare",
    "token create": "heron_cli.commands.access:create_token",
    "token list": "heron_cli.commands.access:list_tokens",
    "token revoke": "heron_cli.commands.access:revoke_token",
    "checkpoint list": "heron_cli.commands.checkpoint:list_checkpoints",
    "checkpoint inspect": "heron_cli.commands.checkpoint:inspect",
    "checkpoint create": "heron_cli.commands.checkpoint:create",
    "checkpoint delete": "heron_cli.commands.checkpoint:delete",
}


class PassThroughCommand(typer.core.TyperCommand):
    """A command that appends all words after the first ``--``, unparsed, to its parameter ``arguments``.

    click uses ``--`` only to end the options: the first word after it fills the first argument that was left out, so
    that in ``submit local words.py -- data`` the word ``data`` would become the name of the topology.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words before the dashes, and pass the words after them through."""
        end = args.index("--") if "--" in args else len(args)
        passed = args[end + 1 :]
        rest = super().parse_args(ctx, args[:end])
        ctx.params["arguments"] = [*(ctx.params.get("arguments") or ()), *passed]
        return rest


def report_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with its exceptions turned into messages on stderr and exit codes.

    ``--verbose`` adds the Python traceback.
    """

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
            sys.stdout.flush()
        except typer.Exit:
            raise  # the message has been printed
        except (KeyboardInterrupt, typer.Abort):  # a prompt turns Ctrl-C and the end of input into Abort
            show_error(Interrupted("interrupted"))
            raise typer.Exit(Interrupted.exit_code) from None
        except BrokenPipeError:
            # The reader has closed the pipe. Without this, Python would report it again when it exits.
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
    print_message(f"heron: internal error: {type(error).__name__}: {error}", "bold red")
    if not is_verbose():
        print_message("Run the command again with --verbose for a traceback, and report it.")


def make_app(only: str = "") -> typer.Typer:
    """Return the application with all commands, or with the command or group that is named ``only``."""

    def add(app: typer.Typer, name: str, target: str, kind: type[typer.core.TyperCommand] | None = None) -> None:
        app.command(name, cls=kind)(report_errors(pkgutil.resolve_name(target)))

    app = typer.Typer(
        name="heron",
        help="Submit topologies to a cluster, observe them, and stop them.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(lambda: None)  # otherwise a single command would become the program itself
    alone = only in _COMMANDS or only in _GROUPS
    for name, target in _COMMANDS.items():
        if not alone or name == only:
            add(app, name, target, PassThroughCommand if name == "submit" else None)
    for group_name, text in _GROUPS.items():
        if not alone or group_name == only:
            group = typer.Typer(help=text, no_args_is_help=True)
            for path, target in _GROUP_COMMANDS.items():
                if path.startswith(f"{group_name} "):
                    add(group, path.removeprefix(f"{group_name} "), target)
            app.add_typer(group, name=group_name)
    return app


def main() -> None:
    """Run the command line of this process and exit with its exit code."""
    os.umask(os.umask(0o022) | 0o022)  # files of this command and its processes are not writable for others
    # Warnings of the state store and of gRPC go to stderr.
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s", stream=sys.stderr)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    app = make_app(sys.argv[1] if len(sys.argv) > 1 else "")
    gc.freeze()
    gc.enable()
    try:
        app(prog_name="heron")
    finally:
        gc.freeze()  # the end of the process frees everything, so a last collection is wasted
