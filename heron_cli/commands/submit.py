"""``heron submit``: run a topology on a cluster, or a program on Spark."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heron_cli.clusters import SPARK, parse_cluster_address, resolve_cluster
from heron_cli.commands import dry_run as plan
from heron_cli.commands.spark_job import SparkSubmitOptions, reject_unused_options, submit_spark_job
from heron_cli.console import print_message, spinner
from heron_cli.home import Home
from heron_cli.options import (
    ClusterArgument,
    VerboseOption,
    WaitOption,
    WaitTimeoutOption,
    given_options,
)
from heron_cli.program import (
    apply_settings,
    check_input,
    check_traits,
    load_topology,
    parse_properties,
    read_cluster_settings,
)
from heron_control.packing import pack
from heron_runtime.failures import NotFound, UsageError
from heron_runtime.model.ids import is_safe_name

if TYPE_CHECKING:  # a dry run imports no submission
    from heron_control.submission.submission import StartFrom

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
    place: ClusterArgument,
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
    wait: WaitOption = True,
    wait_timeout: WaitTimeoutOption = 120.0,
    verbose: VerboseOption = False,
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
    """Submit a topology to a cluster, or a program to Spark. Returns when every task runs, or the job is done.

    Example: heron submit local word_count.py WordCount
    """
    address = parse_cluster_address(place)
    reject_unused_options(address.cluster, given_options(context))
    if address.cluster == SPARK:
        spark_options = SparkSubmitOptions.of(context.params)
        return submit_spark_job(file, topology, arguments or [], spark_options, dry_run=dry_run, replace=replace)
    check_companions(replace=replace, without_state=without_state, dry_run=dry_run, dry_run_format=dry_run_format)
    cluster = resolve_cluster(address.cluster)
    start = parse_start_checkpoint(from_checkpoint, may_drop=allow_dropped_state, replace=replace)
    check_file_and_name(file, name)
    given = parse_properties(config_property or (), address.cluster)
    home = Home.of_user()
    configured = read_cluster_settings(home, address.cluster)
    home.prepare(for_topology=True)
    if not dry_run:  # imported while the process that evaluates the file imports
        from heron_cli.rollout import fit_package, make_submission, submit_and_wait
        from heron_control.submission.submission import StateHandover
    with tempfile.TemporaryDirectory(prefix=".submit-", dir=home.root) as folder:
        package = Path(folder, "package")
        with spinner(f"submitting {file.name}") as progress:
            definition, traits = load_topology(
                home, file, package, topology, name, arguments or [], progress, draws_keys=not dry_run
            )
            definition = apply_settings(definition, configured, given)
            check_traits(definition, traits, strict=strict)
            local = bool(traits.missing) and not dry_run and cluster.runs_on_this_machine()
            check_input(traits.missing, local=local)
            packing = pack(definition)
            if not dry_run:
                fit_package(cluster, package, home, progress)
                submission = make_submission(
                    definition, packing, package, address, {**configured, **given}, paused=deploy_deactivated,
                    start=start, handover=None if without_state else StateHandover(allow_dropped_state, wait_timeout),
                )  # fmt: skip
                submit_and_wait(
                    cluster, address, submission, progress, replace=replace, wait=wait, wait_timeout=wait_timeout
                )
    if dry_run:
        return plan.print_plan(definition, packing, dry_run_format)
    print_message(f"topology {definition.name} {'runs' if wait else 'is submitted'} at {address}", "green")


def check_companions(
    *, replace: bool, without_state: bool, dry_run: bool, dry_run_format: plan.DryRunFormat | None
) -> None:
    """Reject options without effect because another option is missing. Raises UsageError."""
    if without_state and not replace:
        raise UsageError("--without-state is for --replace", "Add --replace, or leave it out.")
    if dry_run_format is not None and not dry_run:
        raise UsageError("--dry-run-format is for --dry-run", "Add --dry-run, or leave it out.")


def check_file_and_name(file: Path, name: str | None) -> None:
    """Check the arguments of ``heron submit``.

    Raises:
        NotFound: The file does not exist.
        UsageError: The name is invalid.
    """
    if not file.exists():
        raise NotFound(f"{file} does not exist", "FILE is a .py file, a package folder, .zip or .tar.gz.")
    if name is not None and not is_safe_name(name):
        raise UsageError(
            f"invalid topology name {name!r}",
            "Use letters, digits, '_', '-' and '.'; the first character must be a letter or '_'.",
        )


def parse_start_checkpoint(reference: str | None, *, may_drop: bool, replace: bool) -> StartFrom | None:
    """Return the checkpoint of ``--from-checkpoint``, None if the option is absent. Raises UsageError."""
    if reference is None and may_drop and not replace:
        raise UsageError("--allow-dropped-state is for --from-checkpoint or --replace", "Add one, or leave it out.")
    if reference is None:
        return None
    from heron_control.submission.submission import StartFrom

    return StartFrom(reference, may_drop)
