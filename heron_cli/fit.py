"""A package that fits where it will run: requirements are fetched anew for a cluster that runs another Python."""

from __future__ import annotations

from pathlib import Path

from heron_control.packaging.package import open_staged_package
from heron_control.packaging.requirements import (
    TargetPlatform,
    find_incompatible_modules,
    install_requirements,
    is_compatible,
    pip_arguments,
)
from heron_control.progress import Progress
from heron_runtime.failures import InvalidTopology, listing
from heronry.api.errors import PackageError


def fit(package: Path, target: TargetPlatform, cluster: str, cache: Path, progress: Progress) -> None:
    """Make the open_staged_package package one that ``target`` can import. Raises InvalidTopology.

    The definition was made with what was installed for this interpreter; what is sent may be another installation.
    """
    found = open_staged_package(package)
    if found.requirements is not None and not is_compatible(target):
        progress(f"fetching {found.requirements.name} for {target}")
        try:
            install_requirements(found, cache, pip_arguments=pip_arguments(target))
        except PackageError as error:
            raise InvalidTopology(
                f"the containers of {cluster} run {target}; {error}",
                "Only wheels can be fetched for another interpreter: choose versions that have one, or submit from "
                f"Python {target.python} on {target.system} {target.machine}.",
            ) from error
    wrong = find_incompatible_modules(package, target)
    if wrong:
        raise InvalidTopology(
            f"the containers of {cluster} run {target} and cannot import {listing(wrong, 5)}",
            f"Leave compiled modules out and name them in requirements.txt, or submit from Python {target.python} on "
            f"{target.system} {target.machine}.",
        )
