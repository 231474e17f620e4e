"""Settings that change at run time: ``heron update --runtime-config [COMPONENT:]KEY:VALUE``. Pure.

Keys of the user's own may change, and those ``topology.*`` keys that a task or the master reads when it starts.
Settings of stream managers, schedulers and containers stay as submitted. A value has the type of its key. For a key of
the user's own that is the type of the current value, or of a YAML scalar without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from heron_runtime.failures import InvalidTopology, UsageError, did_you_mean, listing
from heron_runtime.model.checkpoints import keeps_state
from heron_runtime.model.settings import OF_SUBMIT, Keys, Setting
from heron_runtime.model.topology import TopologyDefinition
from heronry.api.config import check_config, parse_property
from heronry.api.config_values import BadValue, user_value
from heronry.api.errors import ConfigError

USER, OF_STREAMLETS = "user.", "user.streamlet."
_FAMILIES = ("topology.", USER, "heron.")
OF_TASKS: tuple[Setting[Any], ...] = (
    Keys.TOPOLOGY_MAX_SPOUT_PENDING, Keys.TOPOLOGY_TICK_TUPLE_FREQ_SECS, Keys.TOPOLOGY_TICK_TUPLE_FREQ_MS,
    Keys.TOPOLOGY_DEBUG, Keys.TOPOLOGY_LOG_LEVEL, Keys.TOPOLOGY_FLUSH_INTERVAL_MS, Keys.TOPOLOGY_ON_EXCEPTION,
    Keys.TOPOLOGY_SPOUT_DROP_OLDER_MS, Keys.TOPOLOGY_INSTANCE_DATA_IN_CAPACITY_BYTES,
    Keys.TOPOLOGY_INSTANCE_DATA_OUT_CAPACITY_BYTES,
)  # fmt: skip
OF_THE_MASTER: tuple[Setting[Any], ...] = (
    Keys.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECS, Keys.TOPOLOGY_STATEFUL_CHECKPOINT_TIMEOUT_SECS,
    Keys.TOPOLOGY_STATEFUL_CHECKPOINT_KEEP,
)  # fmt: skip
MAY_CHANGE = frozenset(row.name for row in (*OF_TASKS, *OF_THE_MASTER))


@dataclass(frozen=True, slots=True)
class RuntimeSetting:
    """Requested setting. ``component`` is "" for the whole topology."""

    key: str
    value: str
    component: str = ""

    def __str__(self) -> str:
        """Return the setting as it is written on the command line."""
        return ":".join((*([self.component] if self.component else []), self.key, self.value))


def read_settings(texts: Iterable[str]) -> tuple[RuntimeSetting, ...]:
    """Parse ``[COMPONENT:]KEY:VALUE`` texts.

    Raises:
        UsageError: A text is invalid.
    """
    settings: dict[tuple[str, str], RuntimeSetting] = {}
    for text in texts:
        component, key, value = "", *_parted(text)
        if not key.startswith(_FAMILIES):
            component, (key, value) = key, _parted(value, text)
        if (component, key) in settings:
            raise UsageError(f"{text[:128]!r}: {key} is given twice")
        settings[component, key] = RuntimeSetting(key, value, component)
    return tuple(settings.values())


def _parted(text: str, whole: str = "") -> tuple[str, str]:
    key, colon, value = text.partition(":")
    if not (colon and key):
        raise UsageError(f"{(whole or text)[:128]!r} is not [COMPONENT:]KEY:VALUE", "As in count:user.limit:7.")
    return key, value


def with_settings(definition: TopologyDefinition, settings: Iterable[RuntimeSetting]) -> TopologyDefinition:
    """Return the definition with the settings.

    Raises:
        UsageError: A setting cannot change.
        InvalidTopology: The topology is invalid with these values.
    """
    config, own = dict(definition.config), {spec.name: dict(spec.config) for spec in definition.components}
    for each in settings:
        if each.component and each.component not in own:
            hint = did_you_mean(each.component, own)
            raise UsageError(f"{definition.name} has no component {each.component!r}{hint}", f"It has {listing(own)}.")
        _check_key(each, definition)
        values = own[each.component] if each.component else config
        before = values.get(each.key, config.get(each.key))
        values[each.key] = _value(each, before)
    _check(definition.name, config, component=False)
    for name, values in own.items():
        _check(f"{definition.name}, component {name}", values, component=True)
    components = tuple(replace(spec, config=own[spec.name]) for spec in definition.components)
    return replace(definition, config=config, components=components)


def changed_settings(before: TopologyDefinition, after: TopologyDefinition) -> list[dict[str, Any]]:
    """Return the changed values for JSON. ``component`` is None for the whole topology."""
    places: list[tuple[str | None, Mapping[str, Any], Mapping[str, Any]]] = [(None, before.config, after.config)]
    places += [(spec.name, spec.config, after.component(spec.name).config) for spec in before.components]
    return [
        {"component": component, "key": key, "from": old.get(key), "to": new[key]}
        for component, old, new in places
        for key in sorted(new)
        if key not in old or old[key] != new[key]
    ]


def restarted_components(before: TopologyDefinition, after: TopologyDefinition) -> list[str]:
    """Return the components whose tasks have other settings."""
    names = (spec.name for spec in after.components)
    return [name for name in names if before.component_config(name) != after.component_config(name)]


def _check_key(each: RuntimeSetting, definition: TopologyDefinition) -> None:
    key = each.key
    if key.startswith("heron."):
        raise UsageError(
            f"{key}: set by the operator and fixed at submission", "Kill the topology and submit it again."
        )
    if key.startswith(OF_STREAMLETS) or (key not in MAY_CHANGE and not key.startswith(USER)):
        raise UsageError(
            f"{key} cannot change while a topology runs",
            f"Change keys of your own, or {', '.join(sorted(MAY_CHANGE))}.",
        )
    if any(row.name == key for row in OF_THE_MASTER) and not keeps_state(definition.config):
        raise UsageError(f"{key} applies to stateful topologies only, and {definition.name} is stateless")


def _value(each: RuntimeSetting, before: Any) -> Any:
    """Return the typed value of a setting.

    Raises:
        UsageError: The value has another type.
    """
    if not each.key.startswith(USER):
        try:
            return parse_property(f"{each.key}={each.value}")[1]
        except ConfigError as error:
            raise UsageError(str(error)) from error
    try:
        return user_value(each.value, before)
    except BadValue as error:
        raise UsageError(f"{each.key}: {error}") from None


def _check(where: str, values: Mapping[str, Any], *, component: bool) -> None:
    plain = {key: value for key, value in values.items() if key not in OF_SUBMIT}
    problems = check_config(plain, component=component)[1]
    if problems:
        raise InvalidTopology(f"{where}: {problems[0]}", details=problems[1:])
