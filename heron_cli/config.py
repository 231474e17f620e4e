"""``heron config``: the settings of a cluster in ``config.yaml``, below those of topologies and of the command line."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from heron_cli.address import OF_HOME
from heron_cli.clusters import cluster_at
from heron_cli.console import Format, print_json, print_table, say
from heron_cli.home import Home
from heron_cli.options import Output, Verbose, read_property, refuse_idle_keys
from heron_runtime.failures import NotFound, UsageError, did_you_mean, listing
from heron_runtime.model.settings import ALL_SETTINGS, STATE_KEYS
from heronry.api.config import USER_PREFIX, normalize_config
from heronry.api.config_values import user_value


class Action(StrEnum):
    """What to do."""

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
    output: Output = Format.TABLE,
    verbose: Verbose = False,
) -> None:
    """List, set, unset or explain the settings of a cluster. explain prints each key, its value and its origin."""
    name = cluster_at(cluster)[0].name
    home = Home.of_user()
    everything = home.read_config()
    mine = everything.get(name, {})
    if action is Action.SET:
        if key is None or value is None:
            raise UsageError("set needs a key and a value", "heron config CLUSTER set KEY VALUE")
        key, plain = read_property(f"{key}={value}")
        refuse_idle_keys({key: plain}, name)
        plain = user_value(plain) if key.startswith(USER_PREFIX) else plain
        if key in STATE_KEYS and name not in OF_HOME:
            raise UsageError(
                f"{key} is for {listing(OF_HOME)}", f"The api server of {name} has its store's address at its start."
            )
        checked = normalize_config({**mine, key: plain}, where=str(home.config_file), component=False)
        home.write_config({**everything, name: checked})
        say(f"{key} = {plain!r} for topologies submitted to {name} from now on")
    elif action is Action.UNSET:
        if key is None:
            raise UsageError("unset needs a key", "heron config CLUSTER unset KEY")
        if key not in mine:
            raise NotFound(f"{key!r} is not set for {name}{did_you_mean(key, mine)}")
        home.write_config({**everything, name: {k: v for k, v in mine.items() if k != key}})
        say(f"{key} has its default again")
    else:
        _show(action, key, mine, str(home.config_file), output)


def _show(action: Action, key: str | None, mine: dict[str, Any], file: str, output: Format) -> None:
    rows = list_rows(mine) if action is Action.LIST else explain_rows(mine, file)
    if key is not None:
        known = [row["key"] for row in rows]
        rows = [row for row in rows if row["key"] == key]
        if not rows:
            raise NotFound(f"there is no {key!r}{did_you_mean(key, known)}")
    if output is Format.JSON:
        print_json(rows)
    elif rows:
        print_table(tuple(rows[0]), [list(row.values()) for row in rows])
    else:
        say("nothing is set; `explain` in place of `list` shows every key and its default")


def list_rows(mine: dict[str, Any]) -> list[dict[str, Any]]:
    """What is set."""
    return [{"key": key, "value": mine[key]} for key in sorted(mine)]


def explain_rows(mine: dict[str, Any], file: str) -> list[dict[str, Any]]:
    """Every key, its value, where that comes from, and what it means."""
    rows = [
        {
            "key": name,
            "value": mine.get(name, row.default),
            "source": file if name in mine else "default",
            "unit": row.unit,
            "help": row.help,
        }
        for name, row in sorted(ALL_SETTINGS.items())
    ]
    own = sorted(set(mine) - set(ALL_SETTINGS))
    return rows + [{"key": k, "value": mine[k], "source": file, "unit": "", "help": "your own"} for k in own]
