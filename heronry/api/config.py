"""Configuration as users write it: keys, setters and the check that every key and value goes through.

A mistyped key is the commonest fault in a stream job and the hardest to see: it changes nothing. So nothing unknown
passes; the nearest known key is named. What comes out of ``normalise`` is plain data in the units of the table
(``heron_runtime.model.settings``).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from heron_runtime.model.settings import ALL_SETTINGS, Keys, Setting, setting
from heronry.api.config_values import BadValue, checked, from_text, plain_data
from heronry.api.errors import ConfigError

USER_PREFIX = "user."
OPERATOR_PREFIX = "heron."

# Heron's keys that have no meaning here; whoever brings a Heron topology along is told so.
_FOREIGN = {
    "topology.acking": "is deprecated in Heron too; set topology.reliability.mode to ATLEAST_ONCE",
    "topology.serializer.classname": "is topology.serializer here: auto, msgpack, pickle or module:Class",
    "topology.worker.childopts": "is for the Java machine; there is none here",
    "topology.component.jvmopts": "is for the Java machine; there is none here",
    "topology.additional.classpath": "is for the Java machine; put requirements.txt into the package",
    "topology.kryo.register": "is for the Java machine; see topology.serializer",
    "topology.droptuples.upon.backpressure": "is not there: tuples are never dropped; see topology.spout.drop.older.ms",
    "topology.auto.task.hooks": "is not there; add hooks with context.add_task_hook in initialize()",
    "topology.stateful.checkpoint.interval.seconds": "is topology.stateful.checkpoint.interval.secs here",
    "topology.stateful.start.clean": "is not there: a topology that is submitted begins without state",
}


class Config(Keys, dict[str, Any]):
    """A topology's configuration: a dict with the names of all keys and a setter for those used most.

    A plain dict does as well. Setters check at once; everything is checked again when the topology is made.
    """

    # Values of TOPOLOGY_RELIABILITY_MODE.
    ATMOST_ONCE = "ATMOST_ONCE"
    ATLEAST_ONCE = "ATLEAST_ONCE"
    EFFECTIVELY_ONCE = "EFFECTIVELY_ONCE"

    def set(self, key: str, value: Any) -> Config:
        """Set any key. Raises ConfigError."""
        self.update(normalise({key: value}, where="Config", component=False, operator=False))
        return self

    def set_num_stmgrs(self, containers: int) -> Config:
        """The number of containers with tasks; each has one stream manager."""
        return self.set(self.TOPOLOGY_STMGRS, containers)

    def set_topology_reliability_mode(self, mode: str) -> Config:
        """``Config.ATMOST_ONCE``, ``Config.ATLEAST_ONCE`` or ``Config.EFFECTIVELY_ONCE``."""
        return self.set(self.TOPOLOGY_RELIABILITY_MODE, mode)

    def set_max_spout_pending(self, tuples: int) -> Config:
        """How many tracked tuples a spout task may have in flight."""
        return self.set(self.TOPOLOGY_MAX_SPOUT_PENDING, tuples)

    def set_message_timeout_secs(self, seconds: int) -> Config:
        """A tuple tree that is not complete by then fails."""
        return self.set(self.TOPOLOGY_MESSAGE_TIMEOUT_SECS, seconds)

    def set_tick_tuple_frequency(self, seconds: float) -> Config:
        """Call ``process_tick`` of bolts this often."""
        return self.set(self.TOPOLOGY_TICK_TUPLE_FREQ_SECS, seconds)

    def set_debug(self, debug: bool) -> Config:
        """Log at DEBUG."""
        return self.set(self.TOPOLOGY_DEBUG, debug)

    def set_serializer(self, serializer: str) -> Config:
        """``auto``, ``msgpack``, ``pickle`` or a class of your own as ``module:Class``."""
        return self.set(self.TOPOLOGY_SERIALIZER, serializer)

    def set_component_cpu(self, component: str, cores: float) -> Config:
        """Cores of each task of ``component``."""
        return self._set_in(self.TOPOLOGY_COMPONENT_CPUMAP, component, cores)

    def set_component_ram(self, component: str, size: int | str) -> Config:
        """Memory of each task of ``component``: bytes, or ``"512MB"``."""
        return self._set_in(self.TOPOLOGY_COMPONENT_RAMMAP, component, size)

    def set_component_disk(self, component: str, size: int | str) -> Config:
        """Disk of each task of ``component``: bytes, or ``"1GB"``."""
        return self._set_in(self.TOPOLOGY_COMPONENT_DISKMAP, component, size)

    def set_container_cpu(self, cores: float) -> Config:
        """Cores of each container."""
        return self.set(self.TOPOLOGY_CONTAINER_CPU, cores)

    def set_container_ram(self, size: int | str) -> Config:
        """Memory of each container: bytes, or ``"2GB"``."""
        return self.set(self.TOPOLOGY_CONTAINER_RAM, size)

    def set_container_disk(self, size: int | str) -> Config:
        """Disk of each container: bytes, or ``"2GB"``."""
        return self.set(self.TOPOLOGY_CONTAINER_DISK, size)

    def set_volume_disk(self, size: int | str) -> Config:
        """What user code may keep in the topology's volume, on a cluster that gives it one: bytes, or ``"2GB"``."""
        return self.set(self.TOPOLOGY_VOLUME_DISK, size)

    def set_environment(self, name: str, value: str) -> Config:
        """An environment variable of every instance."""
        return self._set_in(self.TOPOLOGY_ENVIRONMENT, name, value)

    def set_user(self, key: str, value: Any) -> Config:
        """A setting of your own, plain data; the key gets the prefix ``user.`` unless it has it."""
        return self.set(key if key.startswith(USER_PREFIX) else USER_PREFIX + key, value)

    def _set_in(self, key: str, name: str, value: Any) -> Config:
        return self.set(key, {**self.get(key, {}), name: value})


def normalise(values: Mapping[str, Any], *, where: str, component: bool, operator: bool = True) -> dict[str, Any]:
    """``values`` checked and in plain form, without keys that are None (their defaults apply).

    ``where`` names the topology, component or option in errors; ``component`` refuses keys that hold for the whole
    topology; ``operator`` lets ``heron.*`` keys pass. Raises ConfigError with every fault found.
    """
    plain, problems = examine(values, component=component, operator=operator)
    if problems:
        raise ConfigError(problems, where)
    return plain


def examine(values: Mapping[str, Any], *, component: bool, operator: bool = True) -> tuple[dict[str, Any], list[str]]:
    """What ``normalise`` returns, and the faults as sentences instead of an exception."""
    if not isinstance(values, Mapping):
        return {}, [f"config is a {type(values).__name__}; write a dict of keys and values"]
    plain: dict[str, Any] = {}
    problems: list[str] = []
    for key, value in values.items():
        try:
            row = _row(key, component, operator)
            if value is not None:
                plain[key] = checked(row, value) if row is not None else plain_data(value)
        except BadValue as error:
            problems.append(f"config key {key!r}: {error}")
        except _BadKey as error:
            problems.append(str(error))
    return plain, problems + _conflicts(plain)


def parse_property(text: str) -> tuple[str, Any]:
    """``"K=V"`` of a command line as key and checked value; values of ``user.*`` stay text. Raises ConfigError."""
    where = f"property {text!r}"
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError("write KEY=VALUE", where)
    try:
        row = _row(key, component=False, operator=True)
        return key, value if row is None else from_text(row, value)
    except (BadValue, _BadKey) as error:
        raise ConfigError(str(error), where) from None


class _BadKey(ValueError):
    """A key is refused."""


def _row(key: Any, component: bool, operator: bool) -> Setting[Any] | None:
    """The key's row of the table; None for a key of the user's own. Raises _BadKey."""
    if not isinstance(key, str):
        raise _BadKey(f"config key {key!r} is not a string")
    if key.startswith(USER_PREFIX) and len(key) > len(USER_PREFIX):
        return None
    if key in _FOREIGN:
        raise _BadKey(f"config key {key!r} {_FOREIGN[key]}")
    row = ALL_SETTINGS.get(key)
    if row is None:
        raise _BadKey(f"there is no config key {key!r}; {_nearest_key(key)}")
    if key == Config.TOPOLOGY_NAME:
        raise _BadKey("config key 'topology.name' is set by submit; write name = '…' on the topology, or use --name")
    if key == Config.TOPOLOGY_ARGUMENTS:
        raise _BadKey(f"config key {key!r} is set by submit; write the arguments at its end: heron submit … -- ARGS")
    if key.startswith(OPERATOR_PREFIX) and (component or not operator):
        raise _BadKey(f"config key {key!r} is the operator's; give it to submit as --config-property {key}=VALUE")
    if component and not row.component:
        raise _BadKey(f"config key {key!r} holds for the whole topology; move it to the config of the topology")
    return row


def _nearest_key(key: str) -> str:
    found = difflib.get_close_matches(key.lower().replace("_", "."), ALL_SETTINGS, n=1, cutoff=0.6)
    near = f"the nearest is {found[0]!r}" if found else "all keys are constants of heronry.Config"
    return f"{near} (keys of your own begin with {USER_PREFIX!r})"


def _conflicts(values: Mapping[str, Any]) -> list[str]:
    """Faults that lie between two keys, each of which is in order."""
    problems = []
    seconds, milliseconds = Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS, Config.TOPOLOGY_TICK_TUPLE_FREQ_MS
    if seconds in values and milliseconds in values:
        problems.append(f"config keys {seconds!r} and {milliseconds!r} say the same thing; keep one of them")
    for lower, higher, strict in _ORDERED:
        if lower.name not in values and higher.name not in values:
            continue
        low, high = setting(values, lower), setting(values, higher)
        if low > high or (strict and low == high):
            least = "less than" if strict else "at most"
            problems.append(
                f"config key {lower.name!r} is {low}{_unless_set(values, lower)}; "
                f"it must be {least} {higher.name!r}, which is {high}{_unless_set(values, higher)}"
            )
    return problems


def _unless_set(values: Mapping[str, Any], key: Setting[float]) -> str:
    return "" if key.name in values else " (its default)"


_ORDERED: tuple[tuple[Setting[float], Setting[float], bool], ...] = (  # lower, higher, must they differ?
    (Keys.TOPOLOGY_BACKPRESSURE_LOW_WATERMARK_BYTES, Keys.TOPOLOGY_BACKPRESSURE_HIGH_WATERMARK_BYTES, True),
    (Keys.HERON_RESTART_BACKOFF_MIN_MS, Keys.HERON_RESTART_BACKOFF_MAX_MS, False),
    (Keys.HERON_LIVENESS_SUSPECT_SECS, Keys.HERON_LIVENESS_KILL_SECS, False),
    (Keys.HERON_LIVENESS_KILL_SECS, Keys.HERON_LIVENESS_KILL_ALWAYS_SECS, False),
)
