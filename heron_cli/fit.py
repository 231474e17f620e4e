"""A package that fits where it will run: requirements are fetched anew for a cluster that runs another Python."""

from __future__ import annotations

from pathlib import Path

from heron_control.packaging.fitting import Target, misfits, pip_arguments, runs_as_here
from heron_control.packaging.package import staged
from heron_control.packaging.requirements import install_requirements
from heron_control.progress import Progress
from heron_runtime.failures import InvalidTopology, listing
from heronry.api.errors import PackageError


def fit(package: Path, target: Target, cluster: str, cache: Path, progress: Progress) -> None:
    """Make the staged package one that ``target`` can import. Raises InvalidTopology.

    The definition was made with what was installed for this interpreter; what is sent may be another installation.
    """
    found = staged(package)
    if found.requirements is not None and not runs_as_here(target):
        progress(f"fetching {found.requirements.name} for {target}")
        try:
            install_requirements(found, cache, pip_arguments=pip_arguments(target))
        except PackageError as error:
            raise InvalidTopology(
                f"the containers of {cluster} run {target}; {error}",
                "Only wheels can be fetched for another interpreter: choose versions that have one, or submit from "
                f"Python {target.python} on {target.system} {target.machine}.",
            ) from error
    wrong = misfits(package, target)
    if wrong:
        raise InvalidTopology(
            f"the containers of {cluster} run {target} and cannot import {listing(wrong, 5)}",
            f"Leave compiled modules out and name them in requirements.txt, or submit from Python {target.python} on "
            f"{target.system} {target.machine}.",
        )
