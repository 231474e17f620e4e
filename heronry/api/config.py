"""Configuration of topologies: keys, setters, and checks of keys and values.

A mistyped key would have no effect and is hard to notice. Unknown keys are therefore refused, with the nearest known
key. ``normalize_config`` returns plain data in the units of ``heron_runtime.model.settings``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict, Unpack

from heron_runtime.model.settings import ALL_SETTINGS, Keys, Setting, setting
from heronry.api.config_values import BadValue, check_value, parse_value, to_plain_data
from heronry.api.errors import ConfigError

USER_PREFIX = "user."
OPERATOR_PREFIX = "heron."

# Keys of Heron and Storm without a meaning here.
_FOREIGN = {
    "topology.acking": "is deprecated in Heron too; set topology.reliability.mode to ATLEAST_ONCE",
    "topology.serializer.classname": "is topology.serializer here: auto, msgpack, pickle or module:Class",
    "topology.worker.childopts": "applies to the JVM, which Heronry does not use",
    "topology.component.jvmopts": "applies to the JVM, which Heronry does not use",
    "topology.additional.classpath": "is for the Java machine; put requirements.txt into the package",
    "topology.kryo.register": "is for the Java machine; see topology.serializer",
    "topology.droptuples.upon.backpressure": "is not supported: no tuple is dropped; see topology.spout.drop.older.ms",
    "topology.auto.task.hooks": "is not supported; add hooks with context.add_task_hook in initialize()",
    "topology.stateful.checkpoint.interval.seconds": "is topology.stateful.checkpoint.interval.secs here",
    "topology.workers": "is topology.stmgrs here: the number of containers",
    "topology.acker.executors": "is not needed: stream managers track tuples; see topology.reliability.mode",
    "topology.tasks": "is not supported: par= of spec() sets the number of tasks",
    "topology.metrics.consumer.register": "is heron.metrics.sinks here",
    "topology.eventlogger.executors": "is not supported; use a task hook, or a bolt that reads the stream",
    "topology.stats.sample.rate": "is not needed: counters count every tuple",
    "topology.stateful.start.clean": "is not supported: a submitted topology starts without state",
}


class ConfigSettings(TypedDict, total=False):
    """Keyword arguments of ``Config``: the keys of topologies with underscores for dots. Sizes may be ``"512MB"``."""

    topology_reliability_mode: Literal["ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE"]
    topology_stateful_checkpoint_interval_secs: float
    topology_stateful_checkpoint_storage: str
    topology_stateful_checkpoint_keep: int
    topology_stateful_checkpoint_timeout_secs: float
    topology_stateful_check_references: bool
    topology_update_drain_secs: float
    topology_max_spout_pending: int
    topology_message_timeout_secs: int
    topology_enable_message_timeouts: bool
    topology_stmgrs: int
    topology_component_parallelism: int
    topology_tick_tuple_freq_secs: float
    topology_tick_tuple_freq_ms: int
    topology_debug: bool
    topology_log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"]
    topology_team_name: str
    topology_team_email: str
    topology_team_environment: str
    topology_project_name: str
    topology_environment: Mapping[str, str]
    topology_network_egress: bool
    topology_serializer: str
    topology_tuple_max_bytes: int | str
    topology_flush_interval_ms: int
    topology_backpressure_high_watermark_bytes: int | str
    topology_backpressure_low_watermark_bytes: int | str
    topology_backpressure_scope: Literal["upstream", "topology"]
    topology_instance_data_in_capacity_bytes: int | str
    topology_instance_data_out_capacity_bytes: int | str
    topology_on_exception: Literal["fail", "restart"]
    topology_spout_drop_older_ms: int
    topology_master_replicas: int
    topology_packing: str
    topology_component_cpumap: Mapping[str, float]
    topology_component_rammap: Mapping[str, int | str]
    topology_component_diskmap: Mapping[str, int | str]
    topology_container_cpu: float
    topology_container_ram: int | str
    topology_container_disk: int | str
    topology_volume_disk: int | str
    topology_container_max_cpu_hint: float
    topology_container_max_ram_hint: int | str
    topology_container_max_disk_hint: int | str
    topology_container_max_instances: int
    topology_container_padding_percentage: int
    topology_container_ram_padding: int | str
    topology_container_cpu_padding: float


class Config(Keys, dict[str, Any]):
    """Configuration of a topology: a dict with constants for all keys, and setters for frequent ones.

    A plain dict works as well. Keyword arguments and setters check their values immediately; all values are checked
    when the topology is defined.

    Args:
        values: Keys and values.
        settings: Values of ``topology.*`` keys, with underscores for dots. Editors complete and check them.

    Raises:
        ConfigError: An unknown key or an invalid value in ``settings``.

    Examples:
        >>> from heronry import Config
        >>> Config(topology_stmgrs=2, topology_container_ram="2GB")
        {'topology.stmgrs': 2, 'topology.container.ram': 2147483648}
    """

    # Values of TOPOLOGY_RELIABILITY_MODE.
    ATMOST_ONCE = "ATMOST_ONCE"
    ATLEAST_ONCE = "ATLEAST_ONCE"
    EFFECTIVELY_ONCE = "EFFECTIVELY_ONCE"

    def __init__(
        self, values: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), /, **settings: Unpack[ConfigSettings]
    ) -> None:
        super().__init__(values)
        for name, value in settings.items():
            self.set(name.replace("_", "."), value)

    def set(self, key: str, value: Any) -> Config:
        """Set a key and return the configuration. Raises ConfigError for an unknown key or an invalid value."""
        self.update(normalize_config({key: value}, where="Config", component=False, operator=False))
        return self

    def set_num_stmgrs(self, containers: int) -> Config:
        """Set the number of containers with tasks. Each container has one stream manager."""
        return self.set(self.TOPOLOGY_STMGRS, containers)

    def set_topology_reliability_mode(self, mode: str) -> Config:
        """Set the delivery guarantee: ``Config.ATMOST_ONCE``, ``ATLEAST_ONCE`` or ``EFFECTIVELY_ONCE``."""
        return self.set(self.TOPOLOGY_RELIABILITY_MODE, mode)

    def set_max_spout_pending(self, tuples: int) -> Config:
        """Set the maximum number of tracked tuples in flight of a spout task."""
        return self.set(self.TOPOLOGY_MAX_SPOUT_PENDING, tuples)

    def set_message_timeout_secs(self, seconds: int) -> Config:
        """Set the timeout of tuple trees."""
        return self.set(self.TOPOLOGY_MESSAGE_TIMEOUT_SECS, seconds)

    def set_tick_tuple_frequency(self, seconds: float) -> Config:
        """Set the interval between calls of ``process_tick``."""
        return self.set(self.TOPOLOGY_TICK_TUPLE_FREQ_SECS, seconds)

    def set_debug(self, debug: bool) -> Config:
        """Set whether to log at level DEBUG."""
        return self.set(self.TOPOLOGY_DEBUG, debug)

    def set_serializer(self, serializer: str) -> Config:
        """Set the serializer: ``auto``, ``msgpack``, ``pickle``, ``arrow``, or a class as ``module:Class``."""
        return self.set(self.TOPOLOGY_SERIALIZER, serializer)

    def set_component_cpu(self, component: str, cores: float) -> Config:
        """Set the cores of each task of a component."""
        return self._set_in(self.TOPOLOGY_COMPONENT_CPUMAP, component, cores)

    def set_component_ram(self, component: str, size: int | str) -> Config:
        """Set the memory of each task of a component, in bytes or as ``"512MB"``."""
        return self._set_in(self.TOPOLOGY_COMPONENT_RAMMAP, component, size)

    def set_component_disk(self, component: str, size: int | str) -> Config:
        """Set the disk space of each task of a component, in bytes or as ``"1GB"``."""
        return self._set_in(self.TOPOLOGY_COMPONENT_DISKMAP, component, size)

    def set_container_cpu(self, cores: float) -> Config:
        """Set the cores of each container."""
        return self.set(self.TOPOLOGY_CONTAINER_CPU, cores)

    def set_container_ram(self, size: int | str) -> Config:
        """Set the memory of each container, in bytes or as ``"2GB"``."""
        return self.set(self.TOPOLOGY_CONTAINER_RAM, size)

    def set_container_disk(self, size: int | str) -> Config:
        """Set the disk space of each container, in bytes or as ``"2GB"``."""
        return self.set(self.TOPOLOGY_CONTAINER_DISK, size)

    def set_volume_disk(self, size: int | str) -> Config:
        """Set the size of the topology's volume, on clusters that provide one, in bytes or as ``"2GB"``."""
        return self.set(self.TOPOLOGY_VOLUME_DISK, size)

    def set_environment(self, name: str, value: str) -> Config:
        """Set an environment variable of all instances."""
        return self._set_in(self.TOPOLOGY_ENVIRONMENT, name, value)

    def set_user(self, key: str, value: Any) -> Config:
        """Set a key of the user to plain data. The prefix ``user.`` is added unless present."""
        return self.set(key if key.startswith(USER_PREFIX) else USER_PREFIX + key, value)

    def _set_in(self, key: str, name: str, value: Any) -> Config:
        return self.set(key, {**self.get(key, {}), name: value})


def normalize_config(
    values: Mapping[str, Any], *, where: str, component: bool, operator: bool = True
) -> dict[str, Any]:
    """Return checked values as plain data, without keys that are None (their defaults apply).

    Args:
        values: Keys and values.
        where: Topology, component or option, for errors.
        component: Whether to refuse keys of whole topologies.
        operator: Whether to accept ``heron.*`` keys.

    Raises:
        ConfigError: The values have problems; it has all of them.
    """
    plain, problems = check_config(values, component=component, operator=operator)
    if problems:
        raise ConfigError(problems, where)
    return plain


def check_config(
    values: Mapping[str, Any], *, component: bool, operator: bool = True
) -> tuple[dict[str, Any], list[str]]:
    """Return the result of ``normalize_config``, and the problems instead of an exception."""
    if not isinstance(values, Mapping):
        return {}, [f"config is a {type(values).__name__}; write a dict of keys and values"]
    plain: dict[str, Any] = {}
    problems: list[str] = []
    for key, value in values.items():
        try:
            row = _row(key, component, operator)
            if value is not None:
                plain[key] = check_value(row, value) if row is not None else to_plain_data(value)
        except BadValue as error:
            problems.append(f"config key {key!r}: {error}")
        except _BadKey as error:
            problems.append(str(error))
    return plain, problems + _conflicts(plain)


def parse_property(text: str) -> tuple[str, Any]:
    """Parse ``KEY=VALUE`` of a command line. Values of ``user.*`` remain text. Raises ConfigError."""
    where = f"property {text!r}"
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError("write KEY=VALUE", where)
    try:
        row = _row(key, component=False, operator=True)
        return key, value if row is None else parse_value(row, value)
    except (BadValue, _BadKey) as error:
        raise ConfigError(str(error), where) from None


class _BadKey(ValueError):
    """An unknown or misplaced key."""


def _row(key: Any, component: bool, operator: bool) -> Setting[Any] | None:
    """Return the setting of a key, None for a ``user.*`` key. Raises _BadKey."""
    if not isinstance(key, str):
        raise _BadKey(f"config key {key!r} is not a string")
    if key.startswith(USER_PREFIX) and len(key) > len(USER_PREFIX):
        return None
    if key in _FOREIGN:
        raise _BadKey(f"config key {key!r} {_FOREIGN[key]}")
    row = ALL_SETTINGS.get(key)
    if row is None:
        raise _BadKey(f"unknown config key {key!r}; {_nearest_key(key)}")
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
    matches = difflib.get_close_matches(key.lower().replace("_", "."), ALL_SETTINGS, n=1, cutoff=0.6)
    near = f"the nearest is {matches[0]!r}" if matches else "all keys are constants of heronry.Config"
    return f"{near} (keys of your own begin with {USER_PREFIX!r})"


def _conflicts(values: Mapping[str, Any]) -> list[str]:
    """Return the conflicts between keys with valid values."""
    problems = []
    seconds, milliseconds = Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS, Config.TOPOLOGY_TICK_TUPLE_FREQ_MS
    if seconds in values and milliseconds in values:
        problems.append(f"config keys {seconds!r} and {milliseconds!r} set the same value; keep one of them")
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
