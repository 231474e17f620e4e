"""Settings of programs that run online, and removed settings with their replacements."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from heron_runtime.model.settings import Keys, setting
from heronry.api.config import Config

IDLE = "user.streamlet.idle.secs"
IDLE_SECONDS = 5.0
FUTURE = "user.streamlet.future.secs"  # how far ahead of the clock an event time may be
FUTURE_SECONDS = 86_400.0
MOST_FUTURE_SECONDS = 1e12
FOLDER = "user.streamlet.folder"  # chosen by the user; outlives the topology
BEGUN = "user.streamlet.begun"  # time of submission, ms since 1970 UTC; part of file names

MODES = (Config.EFFECTIVELY_ONCE, Config.ATMOST_ONCE)
GONE = {
    "user.streamlet.state": (
        "state is in the topology's checkpoints (topology.stateful.checkpoint.storage says where); collected records "
        f"and those put aside go to {FOLDER}"
    ),
    "user.streamlet.durable": f"set {Config.TOPOLOGY_RELIABILITY_MODE} to {Config.ATMOST_ONCE} for state in memory",
    "user.streamlet.retries": (
        "a record that fails is put aside immediately: let the function itself retry calls that may fail temporarily"
    ),
}


def own_folder(config: Mapping[str, Any]) -> Path:
    """Return the folder for collected records and for records put aside.

    This is the user's folder, otherwise ``streamlet`` in the topology's folder (where a task runs).
    """
    return Path(config.get(FOLDER) or Path.cwd() / "streamlet")


def keeps_state(config: Mapping[str, Any]) -> bool:
    """Return False if state is only in memory, and sinks publish without checkpoints."""
    return bool(setting(config, Keys.TOPOLOGY_RELIABILITY_MODE) == Config.EFFECTIVELY_ONCE)


def latest_time(config: Mapping[str, Any]) -> Callable[[], int]:
    """Return a function that returns the latest valid event time at the moment of the call, in ms since 1970 UTC."""
    ahead_ms = float(config.get(FUTURE, FUTURE_SECONDS)) * 1000
    return lambda: int(time.time() * 1000 + ahead_ms)


def problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each setting that the program cannot run with."""
    ahead = config.get(FUTURE, FUTURE_SECONDS)
    if isinstance(ahead, bool) or not isinstance(ahead, int | float) or not 0 <= ahead <= MOST_FUTURE_SECONDS:
        yield f"config {FUTURE!r} is {ahead!r}; it is how many seconds ahead of the clock an event time may be"
    for key, cure in GONE.items():
        if key in config:
            yield f"is given {key}, which was removed: {cure}"
    mode = setting(config, Keys.TOPOLOGY_RELIABILITY_MODE)
    if mode not in MODES:
        yield (
            f"belongs to a program of streamlets, and {Config.TOPOLOGY_RELIABILITY_MODE} is {mode}: leave it out "
            f"({MODES[0]}), or set it to {MODES[1]} for state in memory"
        )
