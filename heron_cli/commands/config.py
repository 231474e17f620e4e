"""``heron config``: the settings of a cluster in ``config.yaml``.

The configuration of a topology and the command line take precedence over them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from heron_cli.clusters import HOME_CLUSTERS, connect_cluster
from heron_cli.console import Format, print_json, print_message, print_table
from heron_cli.home import Home
from heron_cli.options import OutputOption, VerboseOption, read_property, reject_idle_keys
from heron_runtime.failures import NotFound, UsageError, did_you_mean, listing
from heron_runtime.model.settings import ALL_SETTINGS, STATE_KEYS
from heronry.api.config import USER_PREFIX, normalise
from heronry.api.config_values import user_value


class Action(StrEnum):
    """Action on the settings."""

    LIST = "list"
    SET = "set"
    UNSET = "unset"
    EXPLAIN = "explain"


def config(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="Name of the cluster, for example local.")],
    action: Annotated[Action, typer.Argument(help="Action.")],
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", help="Key, for example heron.metrics.interval.secs.")
    ] = None,
    value: Annotated[str | None, typer.Argument(metavar="[VALUE]", help="New value, with set.")] = None,
    output: OutputOption = Format.TABLE,
    verbose: VerboseOption = False,
) -> None:
    """List, set, unset or explain the settings of a cluster.

    `explain` prints each key with its value and its origin.

    Example: heron config local set heron.metrics.interval.secs 10
    """
    name = connect_cluster(cluster)[0].name
    home = Home.of_user()
    everything = home.read_config()
    settings = everything.get(name, {})
    if action is Action.SET:
        if key is None or value is None:
            raise UsageError("set needs a key and a value", "Write heron config CLUSTER set KEY VALUE.")
        key, plain = read_property(f"{key}={value}")
        reject_idle_keys({key: plain}, name)
        plain = user_value(plain) if key.startswith(USER_PREFIX) else plain
        if key in STATE_KEYS and name not in HOME_CLUSTERS:
            raise UsageError(
                f"{key} is for {listing(HOME_CLUSTERS)}", f"The API server of {name} gets its store when it starts."
            )
        checked = normalise({**settings, key: plain}, where=str(home.config_file), component=False)
        home.write_config({**everything, name: checked})
        print_message(f"{key} = {plain!r} for future topologies of {name}")
    elif action is Action.UNSET:
        if key is None:
            raise UsageError("unset needs a key", "Write heron config CLUSTER unset KEY.")
        if key not in settings:
            raise NotFound(f"{key!r} is not set for {name}{did_you_mean(key, settings)}")
        home.write_config({**everything, name: {k: v for k, v in settings.items() if k != key}})
        print_message(f"{key} is reset to its default")
    else:
        _print_settings(action, key, settings, str(home.config_file), output)


def _print_settings(action: Action, key: str | None, settings: dict[str, Any], file: str, output: Format) -> None:
    rows = list_rows(settings) if action is Action.LIST else explain_rows(settings, file)
    if key is not None:
        known = [row["key"] for row in rows]
        rows = [row for row in rows if row["key"] == key]
        if not rows:
            raise NotFound(f"unknown key {key!r}{did_you_mean(key, known)}")
    if output is Format.JSON:
        print_json(rows)
    elif rows:
        print_table(tuple(rows[0]), [list(row.values()) for row in rows])
    else:
        print_message("no key is set; use `explain` instead of `list` to see all keys and their defaults")


def list_rows(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each key that is set."""
    return [{"key": key, "value": settings[key]} for key in sorted(settings)]


def explain_rows(settings: dict[str, Any], file: str) -> list[dict[str, Any]]:
    """Return a row for each key with its value, origin and meaning."""
    rows = [
        {
            "key": name,
            "value": settings.get(name, row.default),
            "source": file if name in settings else "default",
            "unit": row.unit,
            "help": row.help,
        }
        for name, row in sorted(ALL_SETTINGS.items())
    ]
    own = sorted(set(settings) - set(ALL_SETTINGS))
    return rows + [{"key": k, "value": settings[k], "source": file, "unit": "", "help": "defined by you"} for k in own]
