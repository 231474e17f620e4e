"""User's program in the driver, and the files that executors need of it: the same code under the same names.

FILE is staged as for ``heron submit`` and imported here. Executors receive a zip of the staged modules and one of each
Heronry package they use. Libraries with compiled parts must be installed in their Python already
(docs/explanation/spark.md).
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

import data_pipeline
import heron_runtime
import heronry
from data_pipeline.core.failure import user_traceback
from data_pipeline.core.plan import CannotPlan
from data_pipeline.shell.session import is_local
from heron_control.packaging.package import REQUIREMENTS, stage_package
from heron_control.packaging.topology_lookup import LocatedTopology, find_topology
from heronry.api.errors import PackageError, TopologyError, TopologyNotFound, UserCodeError
from heronry.streamlet.program import Program

SHIPPED = (heronry, heron_runtime, data_pipeline)


@dataclass(frozen=True)
class Loaded:
    """Program and the files that executors put on ``sys.path``."""

    program: Program
    ship: tuple[Path, ...]


def load(file: Path, name: str | None, arguments: Sequence[str], master: str, folder: Path) -> Loaded:
    """Import FILE as if it were called with these arguments, and build its program.

    Args:
        file: The program's file.
        name: Class or builder in it; None if there is only one.
        arguments: Arguments of the program.
        master: Spark's master. Workers of a local one are on this machine and use the same Heronry installation.
        folder: Folder for the zips.

    Raises:
        TopologyNotFound: FILE does not define the program.
        TopologyError: It is not a program that Spark runs.
        PackageError: FILE cannot be staged.
        CannotPlan: A function cannot be sent to executors.
        UserCodeError: The user's code raised an exception.
    """
    sys.argv = [str(file), *arguments]
    staged = stage_package(file, folder / "package")
    where = _found(staged.entry, name)
    identifier, topology = where.identifier, where.topology
    program = topology.build() if hasattr(topology, "build") else topology
    if not isinstance(program, Program):
        raise TopologyError(
            f"{identifier} is a {_kind(topology)}, whose spouts and bolts only run online; Spark runs programs of "
            "heronry.streamlet.Builder"
        )
    if program.name == "program" and getattr(topology, "name", "") is None:
        program = replace(program, name=identifier)
    if staged.requirements is not None and not (staged.root / REQUIREMENTS).is_dir():
        raise TopologyError(
            f"{file.name} has a requirements.txt, which is not installed on Spark's executors; "
            "give them an environment that holds it (docs/explanation/spark.md) and remove the file"
        )
    own = _zip(folder / "program.zip", staged.root, "")
    _check_shippable(program)
    return Loaded(program, (own, *(() if is_local(master) else (_heronry(folder, package) for package in SHIPPED))))


def _found(entry: Path, name: str | None) -> LocatedTopology:
    try:
        return find_topology(entry, name)
    except (TopologyError, TopologyNotFound, PackageError, KeyboardInterrupt):
        raise
    except SystemExit as error:
        raise UserCodeError(
            f"{entry.name} called sys.exit({error.code!r}) while it was imported; what is to run only as a script "
            "belongs under `if __name__ == '__main__':`"
        ) from error
    except BaseException as error:  # the user's code may raise anything
        raise UserCodeError(f"{entry.name} raised {type(error).__name__}: {error}", user_traceback(error)) from error


def _check_shippable(program: Program) -> None:
    """Check that all functions can be sent to another process. Raises CannotPlan, naming the step."""
    for step in program.steps:
        try:
            cloudpickle.dumps(step)
        except Exception as error:  # a user's object may raise anything when it is pickled
            raise CannotPlan(
                f"step {step.name!r}: its function cannot be sent to Spark's executors ({error}); "
                "open files, locks and connections inside the function"
            ) from error


def _kind(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else type(value).__name__


def _heronry(folder: Path, package: Any) -> Path:
    root = Path(next(iter(package.__path__)))
    return _zip(folder / f"{package.__name__}.zip", root, package.__name__)


def _zip(target: Path, root: Path, prefix: str) -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as made:
        for file in sorted(root.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts and (not prefix or file.suffix == ".py"):
                made.write(file, str(Path(prefix, file.relative_to(root))))
    return target
