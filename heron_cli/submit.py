"""``heron submit``: from a file of user code to a topology that runs."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heron_cli import dry_run as plan
from heron_cli.address import LOCAL, SPARK, parse_address, user
from heron_cli.clusters import cluster_named
from heron_cli.console import indented, note, say, spinner
from heron_cli.home import Home
from heron_cli.options import Place, Verbose, Wait, WaitTimeout, read_property, refuse_idle_keys, typed
from heron_cli.spark_submit import SparkOptions, check_unused, submit_to_spark
from heron_control.packaging.definer import Said
from heron_control.packaging.load import define_topology
from heron_control.packaging.package import stage_package
from heron_control.packing import pack
from heron_control.progress import Progress
from heron_runtime.failures import InvalidTopology, NotFound, UsageError
from heron_runtime.model.ids import is_safe_name
from heron_runtime.model.settings import OF_SUBMIT, STATE_KEYS, Keys, setting
from heron_runtime.model.topology import TopologyDefinition, TopologyState
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

if TYPE_CHECKING:  # a dry run begins nothing
    from heron_control.submission.submission import StartFrom

DEFINE_TIMEOUT_SECS = 60.0
OF_CHECKPOINTS = "topology.stateful."
From = Annotated[
    str | None,
    typer.Option(
        "--from-checkpoint", metavar="REF",
        help="Start with the state of file:///FOLDER[@NUMBER] or CLUSTER/ROLE/ENV/TOPOLOGY[@NUMBER|@NAME].",
    ),
]  # fmt: skip
Replace = Annotated[
    bool,
    typer.Option("--replace", help="Replace the running topology and migrate its state (Spark: replace the result)."),
]
Dropped = Annotated[
    bool, typer.Option("--allow-dropped-state", help="Allow state without a matching component to be dropped.")
]
InputPath = Annotated[
    list[str] | None, typer.Option("--input-path", metavar="[STEP=]URL", help="Spark: input folder. Repeatable.")
]
DryRunFormat = Annotated[
    plan.DryRunFormat | None,
    typer.Option("--dry-run-format", help="Format of --dry-run. Default: colored on a terminal, else raw."),
]
Properties = Annotated[
    list[str] | None,
    typer.Option("--config-property", metavar="KEY=VALUE", help="Override a configuration key. Repeatable."),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="spark.KEY=VALUE", help="Spark: configuration property. Repeatable."),
]
Mode = Annotated[
    str, typer.Option(metavar="batch|streaming", help="Spark: process all input once, or continue from --checkpoint.")
]
Trigger = Annotated[
    str,
    typer.Option(
        metavar="available-now|processing-time=SECONDS",
        help="Spark, streaming: stop at the end of the input (default), or look for new input at this interval.",
    ),
]

TopologyClass = Annotated[
    str | None,
    typer.Argument(metavar="[TOPOLOGY]", help="Topology class or builder in FILE. Optional if FILE defines only one."),
]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ARGS]...", help="Arguments of the program. Put -- before arguments that begin with a dash."
    ),
]
TopologyName = Annotated[
    str | None, typer.Option("--name", help="Name of the topology. Default: the name of its class.")
]
WithoutState = Annotated[bool, typer.Option("--without-state", help="With --replace: start without the old state.")]


def submit(
    context: typer.Context,
    place: Place,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Python file, package folder, .zip or .tar.gz.")],
    topology: TopologyClass = None,
    arguments: Arguments = None,
    name: TopologyName = None,
    config_property: Properties = None,
    deploy_deactivated: Annotated[bool, typer.Option("--deploy-deactivated", help="Start with paused spouts.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")] = False,
    dry_run_format: DryRunFormat = None,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
    replace: Replace = False,
    without_state: WithoutState = False,
    from_checkpoint: From = None,
    allow_dropped_state: Dropped = False,
    wait: Wait = True,
    wait_timeout: WaitTimeout = 120.0,
    verbose: Verbose = False,
    input_path: InputPath = None,
    input_format: Annotated[str, typer.Option(help="Spark: text, json, csv, parquet, orc or archive.")] = "",
    output_path: Annotated[str, typer.Option(metavar="URL", help="Spark: folder of the result.")] = "",
    from_: Annotated[str, typer.Option("--from", metavar="TIME", help="Spark: least event time.")] = "",
    to: Annotated[str, typer.Option("--to", metavar="TIME", help="Spark: event times must be below this.")] = "",
    master: Annotated[str, typer.Option(help="Spark: local[*], spark://…, yarn or k8s://….")] = "",
    conf: Conf = None,
    mode: Mode = "",
    trigger: Trigger = "",
    checkpoint: Annotated[str, typer.Option(metavar="URL", help="Spark, streaming: folder of the progress.")] = "",
) -> None:
    """Submit a topology to a cluster, or a program to Spark. Returns when every task runs, or the job is done."""
    address, own = parse_address(place), config_property or ()
    check_unused(address.cluster, typed(context))
    if address.cluster == SPARK:
        options = SparkOptions.of(context.params)
        submit_to_spark(file, topology, arguments or [], options, dry_run=dry_run, replace=replace)
        return
    check_companions(replace=replace, without_state=without_state, dry_run=dry_run, dry_run_format=dry_run_format)
    cluster = cluster_named(address.cluster)
    start = begins_with(from_checkpoint, may_drop=allow_dropped_state, replace=replace)
    check_given(file, name)
    given = own_settings(own, address.cluster)
    home = Home.of_user()
    configured = normalize_config(home.read_config().get(address.cluster, {}), where="config.yaml", component=False)
    refuse_idle_keys(configured, address.cluster)
    home.prepare()
    home.need_space()
    if not dry_run:
        from heron_cli.start import fit_to, run, settings_of  # now: the sub-process imports, too
        from heron_control.submission.submission import Carry, Submission
    with tempfile.TemporaryDirectory(prefix=".submit-", dir=home.root) as folder:
        package = Path(folder, "package")
        with spinner(f"submitting {file.name}") as progress:
            definition, classes = define(home, file, package, topology, name, arguments or [], progress, not dry_run)
            definition = configure(definition, configured, given)
            check_said(definition, classes, strict=strict)
            check_input(classes.missing, here=address.cluster == LOCAL and not dry_run)
            packing = pack(definition)
            if not dry_run:
                fit_to(cluster, package, home, progress)
                state = TopologyState.PAUSED if deploy_deactivated else TopologyState.RUNNING
                whose = address.role, address.environ, user()
                settings = settings_of({**configured, **given})
                carry = None if without_state else Carry(allow_dropped_state, wait_timeout)
                submission = Submission(definition, packing, package, *whose, state, settings, start=start, carry=carry)
                run(cluster, address, submission, progress, replace=replace, wait=wait, wait_timeout=wait_timeout)
    if dry_run:
        plan.show(definition, packing, dry_run_format)
        return
    say(f"topology {definition.name} {'runs' if wait else 'is submitted'} at {address}", "green")


def define(
    home: Home,
    file: Path,
    package: Path,
    topology: str | None,
    name: str | None,
    arguments: list[str],
    progress: Progress,
    keys: bool,
) -> tuple[TopologyDefinition, Said]:
    """Stage the package with its requirements, and ask it for its topology; and what its classes say besides.
    ``keys``: some will be drawn."""
    progress(f"staging {file}")
    staged = stage_package(file, package)
    if staged.requirements is not None:
        from heron_control.packaging.requirements import install_requirements

        progress(f"installing {staged.requirements.name} of {file.name}")
        install_requirements(staged, home.root / "cache")
    progress(f"asking {file.name} for its topology")
    if keys:
        from heron_runtime.net.identity import warm_up

        warm_up()  # we only wait now
    said: list[Said] = []
    definition = define_topology(
        staged.entry, topology, name, arguments, DEFINE_TIMEOUT_SECS,
        show=lambda text: say(indented(text)), tells=said.append,
    )  # fmt: skip
    return definition, said[0]


def check_companions(
    *, replace: bool, without_state: bool, dry_run: bool, dry_run_format: plan.DryRunFormat | None
) -> None:
    """Raises UsageError for an option that has no effect without another one."""
    if without_state and not replace:
        raise UsageError("--without-state is for --replace", "Add --replace, or leave it out.")
    if dry_run_format is not None and not dry_run:
        raise UsageError("--dry-run-format is for --dry-run", "Add --dry-run, or leave it out.")


def check_given(file: Path, name: str | None) -> None:
    """Raises NotFound, UsageError."""
    if not file.exists():
        raise NotFound(f"{file} is not there", "FILE is a .py file, a package folder, .zip or .tar.gz.")
    if name is not None and not is_safe_name(name):
        raise UsageError(f"{name!r} is no name of a topology", "Use letters, digits, '_', '-' and '.', a letter first.")


def own_settings(properties: Sequence[str], cluster: str) -> dict[str, Any]:
    """Return what was given as --config-property; values of ``user.*`` as text. Raises UsageError."""
    given = dict(read_property(text) for text in properties)
    refuse_state_keys(given)
    refuse_idle_keys(given, cluster)
    return given


def begins_with(reference: str | None, *, may_drop: bool, replace: bool) -> StartFrom | None:
    """The checkpoint that is asked for, if one is. Raises UsageError."""
    if reference is None and may_drop and not replace:
        raise UsageError("--allow-dropped-state says something about --from-checkpoint or --replace: neither is given")
    if reference is None:
        return None
    from heron_control.submission.submission import StartFrom

    return StartFrom(reference, may_drop)


def check_said(definition: TopologyDefinition, classes: Said, *, strict: bool) -> None:
    """What its classes say and its configuration does not bear out. Raises InvalidTopology if ``strict``."""
    check_reliability(definition, classes.hearing, strict=strict)
    check_ends(definition, classes.ends, strict=strict)


def check_input(missing: Sequence[str], *, here: bool) -> None:
    """What a program is to read and is not on this machine: a note. Raises InvalidTopology if tasks run ``here``."""
    if missing and here:
        raise InvalidTopology("\n".join(missing), "Correct the path, or create the file or folder first.")
    for text in missing:
        say(f"note: {text}")


def check_reliability(definition: TopologyDefinition, hearing: dict[str, list[str]], *, strict: bool) -> None:
    """Spouts that wait for what became of tuples, where nothing tracks them: a warning. Raises InvalidTopology if
    ``strict``."""
    if hearing and setting(definition.config, Keys.TOPOLOGY_RELIABILITY_MODE) == "EFFECTIVELY_ONCE":
        say(f"note: {never_called_note(hearing)}", "yellow")
    if not hearing or not reliability_unsaid(definition.config):
        return
    if strict:
        raise InvalidTopology(hearing_note(hearing), RELIABILITY_CURE)
    say(f"warning: {hearing_note(hearing)}", "yellow")
    say(RELIABILITY_CURE)


def check_ends(definition: TopologyDefinition, ends: dict[str, str], *, strict: bool) -> None:
    """Ends of the graph whose effect may come again, where that is not said in the class: a warning. Raises
    InvalidTopology if ``strict``."""
    if setting(definition.config, Keys.TOPOLOGY_RELIABILITY_MODE) != "EFFECTIVELY_ONCE":
        return
    meant = [name for name, effect in ends.items() if effect == AT_LEAST_ONCE]
    if meant:
        say(f"note: {', '.join(meant)}: what it shows may come again after a fault, as its class says")
    unsaid = [name for name, effect in ends.items() if not effect]
    if not unsaid:
        return
    if strict:
        raise InvalidTopology(shown_again_note(unsaid), SHOWN_AGAIN_CURE)
    say(f"warning: {shown_again_note(unsaid)}", "yellow")
    say(SHOWN_AGAIN_CURE)


def own_value(key: str, text: str, before: Any) -> Any:
    """Return the value that a --config-property stands for. Raises UsageError."""
    try:
        return user_value(text, before)
    except BadValue as error:
        raise UsageError(f"--config-property {key}: {error}") from None


def refuse_state_keys(given: dict[str, Any]) -> None:
    """Raises UsageError for a key that no single topology can have."""
    for key in STATE_KEYS:
        if key in given:
            raise UsageError(
                f"{key} holds for a whole cluster, not for one topology", f"See `heron config CLUSTER set {key} VALUE`."
            )


def configure(definition: TopologyDefinition, configured: dict[str, Any], given: dict[str, Any]) -> TopologyDefinition:
    """The definition with ``config.yaml`` below the topology's own configuration and ``--config-property`` above it.

    A value of ``user.*`` gets the type of the value that it replaces. Raises InvalidTopology if it cannot run so,
    UsageError for a value of another type and for a key that has no effect.
    """
    below = {key: value for key, value in configured.items() if not key.startswith("heron.")}
    merged = {**below, **definition.config}
    above = {
        key: own_value(key, value, merged.get(key)) if key.startswith(USER_PREFIX) else value
        for key, value in given.items()
        if not key.startswith("heron.")
    }
    merged |= above
    for key in above:
        if key.startswith(OF_CHECKPOINTS) and setting(merged, Keys.TOPOLOGY_RELIABILITY_MODE) != "EFFECTIVELY_ONCE":
            raise UsageError(f"{key} has no effect: {definition.name} keeps no state", "Leave it out.")
    submitted = {key: merged.pop(key) for key in OF_SUBMIT if key in merged}
    plain = {**submitted, **normalize_config(merged, where=definition.name, component=False, operator=True)}
    for spec in definition.components:
        for key in above.keys() & spec.config.keys():
            note(f"component {spec.name} has its own {key} = {spec.config[key]!r}, which stands")
    whole = dataclasses.replace(definition, config=plain)
    problems = validate_definition(whole)
    if problems:
        raise InvalidTopology("\n".join(problems), "Leave the setting out, or change the topology.")
    return whole
