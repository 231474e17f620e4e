"""``python -m heron_control.packaging.define FILE [TOPOLOGY] --output PATH [--name N] [-- ARGS]``: ask a file.

The sub-process of ``load``: the user's code is imported here and nowhere else on the submitting side. PATH gets the
definition as protobuf, or JSON ``{kind, message, …}`` about what went wrong. Exit codes: 0 definition, 7 invalid
topology, 3 not found, 1 the user's code raised.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import heron_control
import heron_runtime
import heronry
from heron_control.packaging.definer import INVALID, NOT_FOUND, OK, RAISED
from heron_control.packaging.find import find_topology
from heron_runtime.failures import users_traceback
from heron_runtime.files import replace_file
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import TopologyDefinition
from heronry.api.errors import TopologyError, TopologyNotFound
from heronry.api.validate import problems_of, unsafe_name

_OWN_FRAMES = (
    *(str(Path(package.__file__ or "").parent) + os.sep for package in (heronry, heron_runtime, heron_control)),
    "<frozen importlib",
)


def main(arguments: Sequence[str]) -> int:
    """Answer into ``--output``; returns the exit code."""
    options, user_arguments = _parse(arguments)
    file = Path(options.file)
    sys.argv = [options.file, *user_arguments]
    try:
        definition = _definition(file, options.topology, options.name)
    except TopologyNotFound as error:
        return _answer(options.output, NOT_FOUND, _error("not_found", str(error)))
    except TopologyError as error:
        frames = _user_frames(error)
        more = {"problems": error.problems, "topology": error.topology, "heading": error.heading + _at(frames)}
        return _answer(options.output, INVALID, _error("invalid", str(error), **more))
    except KeyboardInterrupt:
        return 130
    except BaseException as error:  # the user's code may raise anything, SystemExit too
        return _answer(
            options.output, RAISED, _error("raised", _blame(file, error), traceback=users_traceback(error, _is_own))
        )
    from heron_runtime.wire.codec import TOPOLOGY  # not before: a wrong file is told without loading protobuf

    return _answer(options.output, OK, TOPOLOGY.encode(definition))


def _parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    cut = list(arguments).index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(prog="python -m heron_control.packaging.define")
    parser.add_argument("file")
    parser.add_argument("topology", nargs="?")
    parser.add_argument("--name")
    parser.add_argument("--output", required=True, type=Path)
    return parser.parse_args(list(arguments)[:cut]), list(arguments)[cut + 1 :]


def _definition(file: Path, topology: str | None, name: str | None) -> TopologyDefinition:
    if name is not None and (problem := unsafe_name("topology", name)) is not None:
        raise TopologyError(problem, name)
    found = find_topology(file, topology)
    own = getattr(found.topology, "name", None)
    definition = found.definition(name or (None if isinstance(own, str) and own else found.identifier))
    if not isinstance(definition, TopologyDefinition):
        raise TopologyError(f"definition() returned {definition!r}, not a TopologyDefinition", found.identifier)
    problems = problems_of(definition) + list(_missing_classes(definition))
    if problems:
        raise TopologyError(problems, definition.name)
    return definition


def _missing_classes(definition: TopologyDefinition) -> Iterator[str]:
    """Classes that stand in the definition by path only and that instances could not import."""
    paths = [(f"{spec.kind} {spec.name!r}", spec.python_class) for spec in definition.components]
    paths += [
        (f"bolt {edge.destination!r}, custom grouping", edge.grouping.python_class)
        for edge in definition.edges()
        if edge.grouping.python_class
    ]
    serializer = setting(definition.config, Keys.TOPOLOGY_SERIALIZER)
    if ":" in serializer:
        paths.append(("config key 'topology.serializer'", serializer))
    for where, path in paths:
        module, _, name = path.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            yield f"{where}: {path} cannot be imported: {error}"


def _error(kind: str, message: str, **more: Any) -> bytes:
    return json.dumps({"kind": kind, "message": message, **more}).encode()


def _answer(output: Path, code: int, content: bytes) -> int:
    replace_file(output, content)
    return code


def _blame(file: Path, error: BaseException) -> str:
    """One or two sentences: what happened, and the cure where there is a usual one."""
    if isinstance(error, SystemExit):
        return (
            f"{file.name} called sys.exit({error.code!r}) while it was imported; "
            "what is to run only as a script belongs under `if __name__ == '__main__':`"
        )
    text = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    said = f"{file.name} raised {text}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"{said}; {_missing_module(file, error.name.partition('.')[0])}"
    return said


def _missing_module(file: Path, name: str) -> str:
    if file.is_dir():
        return f"put {name} into the package, or its distribution into the package's requirements.txt"
    if (file.parent / f"{name}.py").is_file() or (file.parent / name).is_dir():
        return f"only {file.name} itself is shipped; to ship {name} too, submit the folder that holds both"
    return f"submit a folder with {file.name} and a requirements.txt that names the distribution of {name}"


def _user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if not _is_own(frame.filename)]


def _is_own(filename: str) -> bool:
    """Of Heronry, or of importlib."""
    return filename.startswith(_OWN_FRAMES)


def _at(frames: list[traceback.FrameSummary]) -> str:
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


if __name__ == "__main__":
    _code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_code)  # threads the user's code may have started must not keep the submit waiting
