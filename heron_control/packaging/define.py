"""Sub-process that imports the user's code and returns the definition of a topology.

``python -m heron_control.packaging.define FILE [TOPOLOGY] --output PATH [--name N] [-- ARGS]``. Started by
``heron_control.packaging.definition``; on the submitting side the user's code is imported here only. PATH receives the
definition as msgpack (it is stored as protobuf, which this process does not import), or JSON ``{kind, message, …}``
after an error. ``PATH.said`` receives the ``TopologyTraits`` as JSON. Exit codes: 0 definition, 7 invalid topology, 3
not found, 1 the user's code raised.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import inspect
import json
import os
import sys
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec

import heron_control
import heron_runtime
import heronry
from heron_control.packaging.definer import INVALID, NOT_FOUND, OK, RAISED, TopologyTraits, traits_file
from heron_control.packaging.topology_lookup import find_topology
from heron_runtime.failures import one_line, screenful, users_traceback
from heron_runtime.files import replace_file
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import TopologyDefinition
from heronry.api.component import AT_LEAST_ONCE, Spout
from heronry.api.config import Config
from heronry.api.errors import TopologyError, TopologyNotFound
from heronry.api.state import SHOWN_AGAIN, TwoPhaseSink
from heronry.api.validate import find_name_problem, validate_definition

_OWN_FRAMES = (
    *(str(Path(package.__file__ or "").parent) + os.sep for package in (heronry, heron_runtime, heron_control)),
    "<frozen importlib",
)


def main(arguments: Sequence[str]) -> int:
    """Write the answer to ``--output`` and return the exit code."""
    options, user_arguments = _parse(arguments)
    file = Path(options.file)
    sys.dont_write_bytecode = True  # do not write compiled files next to the user's
    sys.argv = [options.file, *user_arguments]
    try:
        definition, topology = _definition(file, options.topology, options.name)
    except TopologyNotFound as error:
        return _answer(options.output, NOT_FOUND, _error("not_found", str(error)))
    except TopologyError as error:
        frames = _user_frames(error)
        more = {"problems": error.problems, "topology": error.topology, "heading": error.heading + _at(frames)}
        return _answer(options.output, INVALID, _error("invalid", str(error), **more))
    except BaseException as error:  # the user's code may raise anything, including SystemExit
        return _answer(options.output, RAISED, _error("raised", _blame(file, error), traceback=_traceback(error)))
    if user_arguments:  # tasks import the same modules, which may read them
        definition = replace(definition, config={**definition.config, Config.TOPOLOGY_ARGUMENTS: user_arguments})
    traits = TopologyTraits(_reliability_hooks(definition), _output_effects(definition), *_program_traits(topology))
    replace_file(traits_file(options.output), json.dumps(asdict(traits)))
    return _answer(options.output, OK, msgspec.msgpack.encode(definition))


def _reliability_hooks(definition: TopologyDefinition) -> dict[str, list[str]]:
    """Return the user's spouts with their own ``ack`` and ``fail``, or ``tup_id`` if they only emit ids."""
    hooks: dict[str, list[str]] = {}
    for spec in definition.components:
        cls = _import(spec.python_class)
        if spec.is_spout and not cls.__module__.startswith("heronry."):
            own = [name for name in ("ack", "fail") if getattr(cls, name, None) is not getattr(Spout, name)]
            own = own or (["tup_id"] if _gives_ids(cls) else [])
            hooks |= {spec.name: own} if own else {}
    return hooks


def _gives_ids(cls: type) -> bool:
    """Return True if a method of the class or its bases emits with ``tup_id``, as far as the source shows."""
    for base in cls.__mro__:
        if base.__module__.startswith("heronry."):
            break
        with contextlib.suppress(OSError, TypeError, SyntaxError):
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
            calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
            if any(_emits_with_id(call) for call in calls):
                return True
    return False


def _emits_with_id(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return name in ("emit", "emit_many") and any(
        word.arg in ("tup_id", "tup_ids") and not (isinstance(word.value, ast.Constant) and word.value.value is None)
        for word in call.keywords
    )


def _program_traits(topology: Any) -> tuple[list[str], list[str]]:
    """Return ``missing`` and ``drops_late`` of a streamlet program; both are empty for a topology."""
    reading = sys.modules.get("heronry.streamlet.reading")  # a program cannot exist unless it is imported
    if reading is None or (not hasattr(topology, "steps") and not hasattr(topology, "build")):
        return [], []
    program = topology if hasattr(topology, "steps") else topology.build()
    return reading.missing(program), program.drops_late()


def _output_effects(definition: TopologyDefinition) -> dict[str, str]:
    """Return the bolts without readers and the delivery guarantee of their output, "" if unknown."""
    effects: dict[str, str] = {}
    for spec in definition.components:
        cls = _import(spec.python_class)
        if spec.config.get(SHOWN_AGAIN):
            effects[spec.name] = AT_LEAST_ONCE
        elif not spec.is_spout and not issubclass(cls, TwoPhaseSink):
            effects[spec.name] = cls.output_effect
    read = {edge.source for edge in definition.edges()}
    return {name: effect for name, effect in effects.items() if name not in read or effect == AT_LEAST_ONCE}


def _import(path: str) -> Any:
    """Return the object that ``module:Class`` names.

    Raises:
        ImportError: The module cannot be imported.
        AttributeError: The module lacks the name.
    """
    module, _, name = path.partition(":")
    value: Any = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    cut = list(arguments).index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(prog="python -m heron_control.packaging.define")
    parser.add_argument("file")
    parser.add_argument("topology", nargs="?")
    parser.add_argument("--name")
    parser.add_argument("--output", required=True, type=Path)
    return parser.parse_args(list(arguments)[:cut]), list(arguments)[cut + 1 :]


def _definition(file: Path, topology: str | None, name: str | None) -> tuple[TopologyDefinition, Any]:
    """Return the definition, and the object in the file that it is of."""
    if name is not None and (problem := find_name_problem("topology", name)) is not None:
        raise TopologyError(problem, name)
    located = find_topology(file, topology)
    own = getattr(located.topology, "name", None)
    definition = located.definition(name or (None if isinstance(own, str) and own else located.identifier))
    if not isinstance(definition, TopologyDefinition):
        raise TopologyError(f"definition() returned {definition!r}, not a TopologyDefinition", located.identifier)
    problems = validate_definition(definition) + list(_missing_classes(definition))
    if problems:
        raise TopologyError(problems, definition.name)
    return definition, located.topology


def _missing_classes(definition: TopologyDefinition) -> Iterator[str]:
    """Yield a problem for each class named by its path that instances could not import."""
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
        try:
            _import(path)
        except (ImportError, AttributeError) as error:
            yield f"{where}: {path} cannot be imported: {error}"


def _error(kind: str, message: str, **more: Any) -> bytes:
    return json.dumps({"kind": kind, "message": message, **more}).encode()


def _answer(output: Path, code: int, content: bytes) -> int:
    replace_file(output, content)
    return code


def _blame(file: Path, error: BaseException) -> str:
    """Return one or two sentences: what happened, and the remedy if there is a usual one."""
    if isinstance(error, SystemExit):
        return (
            f"{file.name} called sys.exit({one_line(repr(error.code), 100)}) while it was imported; "
            "what is to run only as a script belongs under `if __name__ == '__main__':`"
        )
    said = f"{file.name} raised {_in_a_line(error)}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"{said}; {_missing_module(file, error.name.partition('.')[0])}"
    return said


def _traceback(error: BaseException) -> str:
    try:
        return screenful(users_traceback(error, _is_own))
    except Exception:  # an exception of the user's class may raise when it is inspected
        return ""


def _in_a_line(error: BaseException) -> str:
    """Return ``Class: message``."""
    cls = type(error)
    name = cls.__qualname__ if cls.__module__ in ("builtins", "__main__") else f"{cls.__module__}.{cls.__qualname__}"
    try:
        said = str(error)
    except Exception:  # raised by a class of the user's
        said = "(its text cannot be had)"
    return one_line(f"{name}: {said}" if said else name)


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
    """Return True for files of Heronry or importlib."""
    return filename.startswith(_OWN_FRAMES)


def _at(frames: list[traceback.FrameSummary]) -> str:
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


if __name__ == "__main__":
    _code = main(sys.argv[1:])
    for _stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the user's code may have closed or replaced them
            _stream.flush()
    os._exit(_code)  # threads the user's code may have started must not keep the submit waiting
