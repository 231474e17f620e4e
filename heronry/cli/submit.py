"""``heron submit``: from a file of user code to a topology that runs."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from heronry.api.config import normalise
from heronry.api.load import define_topology
from heronry.api.package import stage_package
from heronry.api.requirements import install_requirements
from heronry.cli import dry_run as plan
from heronry.cli.address import Address, parse_address
from heronry.cli.clusters import Cluster, Submission, Talk, cluster_named
from heronry.cli.console import note, progress, say
from heronry.cli.errors import CliError, Interrupted, NotFound, UsageError
from heronry.cli.home import Home
from heronry.cli.options import Place, Verbose, Wait, WaitTimeout, read_property
from heronry.cli.wait import wait_for_state
from heronry.model.ids import is_safe_name
from heronry.model.topology import TopologyDefinition, TopologyState
from heronry.packing import pack

DEFINE_TIMEOUT_SECS = 60.0
NAME_KEY = "topology.name"


def submit(
    place: Place,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .py file, a package folder, .zip or .tar.gz.")],
    topology: Annotated[
        str | None, typer.Argument(metavar="[TOPOLOGY]", help="Class or builder in FILE; needless if it is alone.")
    ] = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="Given to the user's program; put -- before dashes.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Call the topology this.")] = None,
    config_property: Annotated[
        list[str] | None, typer.Option("--config-property", metavar="KEY=VALUE", help="Set a key; may be repeated.")
    ] = None,
    deploy_deactivated: Annotated[bool, typer.Option("--deploy-deactivated", help="Spouts start paused.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the packing plan and change nothing.")] = False,
    dry_run_format: Annotated[
        plan.DryRunFormat | None, typer.Option("--dry-run-format", help="Default: coloured on a terminal.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Kill a running topology of this name first.")] = False,
    wait: Wait = True,
    wait_timeout: WaitTimeout = 120.0,
    verbose: Verbose = False,
) -> None:
    """Submit a topology. Ends with success only when every task runs."""
    address = parse_address(place)
    cluster = cluster_named(address.cluster)
    if not file.exists():
        raise NotFound(f"{file} is not there", "FILE is a .py file, a package folder, .zip or .tar.gz.")
    if name is not None and not is_safe_name(name):
        raise UsageError(f"{name!r} is no name of a topology", "Use letters, digits, '_', '-' and '.', a letter first.")
    given = dict(read_property(text) for text in config_property or ())
    home = Home.of_user()
    configured = normalise(home.read_config().get(address.cluster, {}), where="config.yaml", component=False)
    home.prepare()
    home.need_space()
    with tempfile.TemporaryDirectory(prefix=".submit-", dir=home.root) as folder:
        package = Path(folder, "package")
        with progress(f"submitting {file.name}") as spinner:
            definition = define(home, file, package, topology, name, arguments or [], spinner.update)
            definition = configure(definition, configured, given)
            packing = pack(definition)
            if not dry_run:
                state = TopologyState.PAUSED if deploy_deactivated else TopologyState.RUNNING
                settings = {k: v for k, v in {**configured, **given}.items() if k.startswith("heron.")}
                submission = Submission(address, definition, packing, package, state, settings)
                run(cluster, submission, spinner.update, replace=replace, wait=wait, wait_timeout=wait_timeout)
    if dry_run:
        plan.show(definition, packing, dry_run_format)
        return
    verb = "runs" if wait else "is submitted"
    say(f"topology {definition.name} {verb} at {address}", "green")


def define(
    home: Home, file: Path, package: Path, topology: str | None, name: str | None, arguments: list[str], talk: Talk
) -> TopologyDefinition:
    """Stage the package with its requirements, and ask it for its topology."""
    talk(f"staging {file}")
    staged = stage_package(file, package)
    if staged.requirements is not None:
        talk(f"installing {staged.requirements.name} of {file.name}")
        install_requirements(staged, home.root / "cache")
    talk(f"asking {file.name} for its topology")
    return define_topology(staged.entry, topology, name, arguments, DEFINE_TIMEOUT_SECS, talk=say)


def configure(
    definition: TopologyDefinition, configured: dict[str, Any], given: dict[str, Any]
) -> TopologyDefinition:
    """The definition with ``config.yaml`` below the topology's own configuration and ``--config-property`` above it."""
    below = {key: value for key, value in configured.items() if not key.startswith("heron.")}
    above = {key: value for key, value in given.items() if not key.startswith("heron.")}
    merged = {**below, **definition.config, **above}
    name = {NAME_KEY: merged.pop(NAME_KEY)} if NAME_KEY in merged else {}  # the definition has it, users may not set it
    plain = {**name, **normalise(merged, where=definition.name, component=False, operator=True)}
    for spec in definition.components:
        for key in above.keys() & spec.config.keys():
            note(f"component {spec.name} has its own {key} = {spec.config[key]!r}, which stands")
    return dataclasses.replace(definition, config=plain)


def run(
    cluster: Cluster, submission: Submission, talk: Talk, *, replace: bool, wait: bool, wait_timeout: float
) -> None:
    """Submit, and see it run. What does not come up is killed again, but its logs are kept."""
    name = submission.definition.name
    try:
        starter_lives = cluster.submit(submission, talk, replace=replace)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted: {name} was not submitted, nothing runs") from None
    if not wait:
        return
    try:
        with cluster.open_store() as store:
            wait_for_state(
                cluster, store, name, submission.definition.id,
                timeout_secs=wait_timeout, talk=talk, starter_lives=starter_lives,
            )  # fmt: skip
    except KeyboardInterrupt:
        where = f"{submission.address} {name}"
        raise Interrupted(
            f"interrupted: {name} is submitted and goes on starting",
            f"See `heron status {where}`, or end it with `heron kill {where}`.",
        ) from None
    except CliError as error:
        _take_back(cluster, submission.address, name, talk)
        logs = Home.of_user().topology(*submission.address.parts, name) / "log-files"
        error.cure = f"It was taken back. Its logs are kept in {logs}"
        raise


def _take_back(cluster: Cluster, address: Address, name: str, talk: Talk) -> None:
    try:
        cluster.kill(address, name, talk, keep_logs=True)
    except NotFound:
        note(f"somebody killed {name} meanwhile")
