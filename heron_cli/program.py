"""From the user's file to a topology definition: stage, evaluate, apply settings, check classes.

Nothing here asks a cluster, so a dry run imports no gRPC and no state store.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from heron_cli.console import indent_foreign_text, print_detail, print_message
from heron_cli.home import Home
from heron_cli.options import read_property, reject_idle_keys
from heron_control.packaging.definer import TopologyTraits
from heron_control.packaging.definition import define_topology
from heron_control.packaging.package import stage_package
from heron_control.progress import Progress
from heron_runtime.failures import InvalidTopology, UsageError
from heron_runtime.model.settings import OF_SUBMIT, STATE_KEYS, Keys, setting
from heron_runtime.model.topology import TopologyDefinition
from heronry.api.component import AT_LEAST_ONCE
from heronry.api.config import USER_PREFIX, normalize_config
from heronry.api.config_values import BadValue, user_value
from heronry.api.reliability_hints import (
    RELIABILITY_CURE,
    SHOWN_AGAIN_CURE,
    hearing_note,
    never_called_note,
    reliability_unsaid,
    shown_again_note,
)
from heronry.api.validate import validate_definition

DEFINE_TIMEOUT_SECS = 60.0
CHECKPOINT_PREFIX = "topology.stateful."


def load_topology(
    home: Home,
    file: Path,
    package: Path,
    topology: str | None,
    name: str | None,
    arguments: list[str],
    progress: Progress,
    *,
    draws_keys: bool,
) -> tuple[TopologyDefinition, TopologyTraits]:
    """Stage the package with its requirements, and evaluate its topology in a process of its own.

    Args:
        home: The home folder, with the cache of requirements.
        file: Python file, package folder or archive of the user.
        package: New folder of the staged package.
        topology: Topology class or builder in the file, None for the only one.
        name: Name of the topology, None for that of its class.
        arguments: Arguments of the program.
        progress: Shows the current step.
        draws_keys: Whether the caller will draw keys, so that the import for it can run meanwhile.

    Returns:
        The definition, and what the classes declare about acks and output.
    """
    progress(f"staging {file}")
    staged = stage_package(file, package)
    if staged.requirements is not None:
        from heron_control.packaging.requirements import install_requirements

        progress(f"installing {staged.requirements.name} of {file.name}")
        install_requirements(staged, home.root / "cache")
    progress(f"loading the topology of {file.name}")
    if draws_keys:
        from heron_runtime.net.identity import warm_up

        warm_up()  # this process only waits now
    traits: list[TopologyTraits] = []
    definition = define_topology(
        staged.entry, topology, name, arguments, DEFINE_TIMEOUT_SECS,
        show=lambda text: print_message(indent_foreign_text(text)), tells=traits.append,
    )  # fmt: skip
    return definition, traits[0]


def read_cluster_settings(home: Home, cluster: str) -> dict[str, Any]:
    """Return the settings of a cluster in ``config.yaml``. Raises Failure, UsageError."""
    settings = normalize_config(home.read_config().get(cluster, {}), where="config.yaml", component=False)
    reject_idle_keys(settings, cluster)
    return settings


def parse_properties(properties: Sequence[str], cluster: str) -> dict[str, Any]:
    """Parse the values of ``--config-property``. Values of ``user.*`` remain text. Raises UsageError."""
    given = dict(read_property(text) for text in properties)
    for key in STATE_KEYS:
        if key in given:
            raise UsageError(
                f"{key} applies to a whole cluster, not to one topology",
                f"Use `heron config CLUSTER set {key} VALUE`.",
            )
    reject_idle_keys(given, cluster)
    return given


def apply_settings(
    definition: TopologyDefinition, configured: dict[str, Any], given: dict[str, Any]
) -> TopologyDefinition:
    """Merge ``config.yaml``, the configuration of the topology and ``--config-property``, in this order.

    A value of ``user.*`` gets the type of the value that it replaces.

    Raises:
        InvalidTopology: The topology cannot run with these settings.
        UsageError: A value has another type, or a key has no effect.
    """
    below = {key: value for key, value in configured.items() if not key.startswith("heron.")}
    merged = {**below, **definition.config}
    above = {
        key: _convert_property(key, value, merged.get(key)) if key.startswith(USER_PREFIX) else value
        for key, value in given.items()
        if not key.startswith("heron.")
    }
    merged |= above
    for key in above:
        if key.startswith(CHECKPOINT_PREFIX) and not _is_effectively_once(merged):
            raise UsageError(f"{key} has no effect: {definition.name} keeps no state", "Leave it out.")
    submitted = {key: merged.pop(key) for key in OF_SUBMIT if key in merged}
    config = {**submitted, **normalize_config(merged, where=definition.name, component=False, operator=True)}
    for spec in definition.components:
        for key in above.keys() & spec.config.keys():
            print_detail(f"component {spec.name} keeps its own {key} = {spec.config[key]!r}")
    configured_definition = dataclasses.replace(definition, config=config)
    problems = validate_definition(configured_definition)
    if problems:
        raise InvalidTopology("\n".join(problems), "Leave the setting out, or change the topology.")
    return configured_definition


def check_traits(definition: TopologyDefinition, traits: TopologyTraits, *, strict: bool) -> None:
    """Warn if the configuration contradicts what the classes declare. Raises InvalidTopology if `strict`."""
    check_ack_handlers(definition, traits.hearing, strict=strict)
    check_output_effects(definition, traits.ends, strict=strict)
    for step in traits.drops_late:
        print_message(f"note: step {step!r}: late records are dropped and counted; read them with .late()", "yellow")


def check_input(missing: Sequence[str], *, local: bool) -> None:
    """Report input that does not exist on this machine. Raises InvalidTopology if the tasks are `local`."""
    if missing and local:
        raise InvalidTopology("\n".join(missing), "Correct the path, or create the file or folder first.")
    for text in missing:
        print_message(f"note: {text}")


def check_ack_handlers(definition: TopologyDefinition, handlers: dict[str, list[str]], *, strict: bool) -> None:
    """Warn about spouts with ack handlers in a topology without tuple tracking. Raises InvalidTopology if `strict`."""
    if handlers and _is_effectively_once(definition.config):
        print_message(f"note: {never_called_note(handlers)}", "yellow")
    if not handlers or not reliability_unsaid(definition.config):
        return
    if strict:
        raise InvalidTopology(hearing_note(handlers), RELIABILITY_CURE)
    print_message(f"warning: {hearing_note(handlers)}", "yellow")
    print_message(RELIABILITY_CURE)


def check_output_effects(definition: TopologyDefinition, effects: dict[str, str], *, strict: bool) -> None:
    """Warn about sinks that may repeat output and do not declare it. Raises InvalidTopology if `strict`."""
    if not _is_effectively_once(definition.config):
        return
    declared = [name for name, effect in effects.items() if effect == AT_LEAST_ONCE]
    if declared:
        print_message(f"note: {', '.join(declared)}: output may be repeated after a fault, as the class declares")
    undeclared = [name for name, effect in effects.items() if not effect]
    if not undeclared:
        return
    if strict:
        raise InvalidTopology(shown_again_note(undeclared), SHOWN_AGAIN_CURE)
    print_message(f"warning: {shown_again_note(undeclared)}", "yellow")
    print_message(SHOWN_AGAIN_CURE)


def _is_effectively_once(config: Mapping[str, Any]) -> bool:
    return setting(config, Keys.TOPOLOGY_RELIABILITY_MODE) == "EFFECTIVELY_ONCE"


def _convert_property(key: str, text: str, before: Any) -> Any:
    """Return the value of a ``--config-property`` in the type of the value before. Raises UsageError."""
    try:
        return user_value(text, before)
    except BadValue as error:
        raise UsageError(f"--config-property {key}: {error}") from None
