"""The application ``heron``: the table of its commands, the report of their errors, and its entry point.

A command is a function of ``heron_cli.commands`` that raises ``Failure`` or an exception that ``to_failure`` knows. A
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
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import typer
import typer.core

from heron_cli.console import is_verbose, print_message, show_error
from heron_runtime.failures import Interrupted, to_failure

HELP_WORDS = ("", "-h", "--help")  # of a command line that only prints the help
COMPLETION_VARIABLE = "_HERON_COMPLETE"  # the shell asks for completions, which need the options of the commands


class Panel(StrEnum):
    """Section of the help that lists commands."""

    RUN = "Run"
    OBSERVE = "Observe"
    STATE = "State"
    VIEWS = "Views, history and Spark"
    CLUSTERS = "Clusters and this installation"


class CommandEntry(NamedTuple):
    """A command: its function as ``module:name``, its panel, and the first line of its docstring."""

    target: str
    panel: Panel
    summary: str


class GroupEntry(NamedTuple):
    """A group of commands: the function of each command as ``module:name``, its panel and its help."""

    targets: Mapping[str, str]
    panel: Panel
    summary: str


_COMMANDS = {
    "submit": CommandEntry(
        "heron_cli.commands.submit:submit", Panel.RUN, "Submit a topology to a cluster, or a program to Spark."
    ),
    "kill": CommandEntry(
        "heron_cli.commands.lifecycle:kill",
        Panel.RUN,
        "Kill a topology and remove its processes, sockets and state. With CLUSTER spark: stop a streaming run.",
    ),
    "activate": CommandEntry("heron_cli.commands.lifecycle:activate", Panel.RUN, "Activate the spouts of a topology."),
    "deactivate": CommandEntry(
        "heron_cli.commands.lifecycle:deactivate",
        Panel.RUN,
        "Pause the spouts of a topology. Emitted tuples are still processed.",
    ),
    "update": CommandEntry(
        "heron_cli.commands.lifecycle:update",
        Panel.RUN,
        "Change the parallelism of components, the number of containers, or settings, while the topology runs.",
    ),
    "move": CommandEntry(
        "heron_cli.commands.lifecycle:move",
        Panel.RUN,
        "Move all tasks of a container to a new one while the topology runs.",
    ),
    "restart": CommandEntry(
        "heron_cli.commands.lifecycle:restart", Panel.RUN, "Restart one container of a topology, or all of them."
    ),
    "list": CommandEntry(
        "heron_cli.commands.status:list_topologies",
        Panel.OBSERVE,
        "List the topologies of a cluster, or of one role and environment in it.",
    ),
    "status": CommandEntry(
        "heron_cli.commands.status:status", Panel.OBSERVE, "Show the containers and processes of a topology."
    ),
    "logs": CommandEntry(
        "heron_cli.commands.logs:logs",
        Panel.OBSERVE,
        "Print the logs of a component, an instance or another process of a topology.",
    ),
    "metrics": CommandEntry(
        "heron_cli.commands.status:metrics", Panel.OBSERVE, "Print counts, rates and latencies of a topology."
    ),
    "tracker": CommandEntry(
        "heron_cli.commands.tracker:tracker", Panel.OBSERVE, "Serve the REST interface and the web page until Ctrl-C."
    ),
    "restore": CommandEntry(
        "heron_cli.commands.checkpoint:restore",
        Panel.STATE,
        "Restore all tasks of a topology from its last complete checkpoint, or from an older one.",
    ),
    "config": CommandEntry(
        "heron_cli.commands.config:config", Panel.CLUSTERS, "List, set, unset or explain the settings of a cluster."
    ),
    "login": CommandEntry("heron_cli.commands.access:login", Panel.CLUSTERS, "Log in to the API server of a cluster."),
    "logout": CommandEntry("heron_cli.commands.access:logout", Panel.CLUSTERS, "Remove the stored token of a cluster."),
    "doctor": CommandEntry(
        "heron_cli.commands.doctor:doctor", Panel.CLUSTERS, "Check the requirements of this machine or of an engine."
    ),
    "version": CommandEntry(
        "heron_cli.commands.doctor:version",
        Panel.CLUSTERS,
        "Show the versions of Heronry and of its main dependencies.",
    ),
}
_GROUPS = {
    "checkpoint": GroupEntry(
        {
            "list": "heron_cli.commands.checkpoint:list_checkpoints",
            "inspect": "heron_cli.commands.checkpoint:inspect",
            "create": "heron_cli.commands.checkpoint:create",
            "delete": "heron_cli.commands.checkpoint:delete",
        },
        Panel.STATE, "Manage the checkpoints of a topology with state.",
    ),
    "pipeline": GroupEntry(
        {
            "run": "heron_cli.commands.view_batches:run",
            "backfill": "heron_cli.commands.view_batches:backfill",
            "schedule": "heron_cli.commands.view_batches:schedule",
            "status": "heron_cli.commands.views:status",
            "views": "heron_cli.commands.views:list_views",
            "keys": "heron_cli.commands.views:keys",
            "top": "heron_cli.commands.views:show_top",
            "series": "heron_cli.commands.views:show_series",
            "roll-up": "heron_cli.commands.history:roll_up",
            "history": "heron_cli.commands.history:history",
            "advise": "heron_cli.commands.history:advise",
        },
        Panel.VIEWS, "Run batches of merged views on Spark, query views, and analyze the history of topologies.",
    ),
    "spark": GroupEntry(
        {
            "start": "heron_cli.commands.spark:start",
            "stop": "heron_cli.commands.spark:stop",
            "status": "heron_cli.commands.spark:status",
            "prepare": "heron_cli.commands.spark:prepare",
        },
        Panel.VIEWS, "Keep Spark warm, or speed up its start.",
    ),
    "token": GroupEntry(
        {
            "create": "heron_cli.commands.access:create_token",
            "list": "heron_cli.commands.access:list_tokens",
            "revoke": "heron_cli.commands.access:revoke_token",
        },
        Panel.CLUSTERS, "Manage the tokens of a cluster with an API server.",
    ),
}  # fmt: skip


class PanelGroup(typer.core.TyperGroup):
    """The program ``heron``. Its help lists the commands by panel."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section of the help for each panel."""
        entries: dict[str, CommandEntry | GroupEntry] = {**_COMMANDS, **_GROUPS}
        for panel in Panel:
            rows = [(name, entry.summary) for name, entry in entries.items() if entry.panel is panel]
            with formatter.section(panel.value):
                formatter.write_dl(rows)


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
    print_message(f"heron: internal error: {type(error).__name__}: {error}", "bold red")
    if not is_verbose():
        print_message("Run the command again with --verbose for a traceback, and report it.")


def make_app(only: str = "", *, load: bool = True) -> typer.Typer:
    """Return the application.

    Args:
        only: Name of the only command or group to include. All of them if there is none of this name.
        load: Whether to import the functions of the commands. Without them the application can only print its help.
    """
    app = typer.Typer(
        name="heron",
        cls=PanelGroup,
        help="Submit topologies to a cluster, observe them, and stop them.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(lambda: None)  # otherwise a single command would become the program itself
    alone = only in _COMMANDS or only in _GROUPS
    for name, entry in _COMMANDS.items():
        if not alone or name == only:
            function = pkgutil.resolve_name(entry.target) if load else _not_loaded
            app.command(name, cls=PassThroughCommand if name == "submit" else None)(report_errors(function))
    for name, group in _GROUPS.items():
        if not alone or name == only:
            sub_app = typer.Typer(help=group.summary, no_args_is_help=True)
            for command, target in group.targets.items():
                function = pkgutil.resolve_name(target) if load else _not_loaded
                sub_app.command(command)(report_errors(function))
            app.add_typer(sub_app, name=name)
    return app


def _not_loaded() -> None:
    """Stand in for the function of a command."""


def main() -> None:
    """Run the command line of this process and exit with its exit code."""
    os.umask(os.umask(0o022) | 0o022)  # files of this command and its processes are not writable for others
    # Warnings of the state store and of gRPC go to stderr.
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s", stream=sys.stderr)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    app = make_app(first, load=first not in HELP_WORDS or COMPLETION_VARIABLE in os.environ)
    gc.freeze()
    gc.enable()
    try:
        app(prog_name="heron")
    finally:
        gc.freeze()  # the end of the process frees everything, so a last collection is wasted
