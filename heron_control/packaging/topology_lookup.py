"""Lookup of the user's topology: from FILE and TOPOLOGY to the object that has ``definition()``.

Runs in the sub-process that imports the user's code. FILE is a .py file or a folder. A file is imported under its stem,
without the other files of its folder: only the file is shipped, so an import that fails here would fail later as well.
A folder (for a package its parent) is put on ``sys.path``, followed by its installed requirements, as in the instances.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from heron_control.packaging.package import import_paths
from heron_runtime.failures import did_you_mean, listing
from heronry.api.errors import TopologyError, TopologyNotFound
from heronry.api.topology import Topology

_NOT_SHOWN = ("setup", "conftest", "tests", "test", "docs", "requirements")
_MAX_SCANNED = 2_000
FREE_NAMES = frozenset((  # importable where Heronry or a checkout of it is installed, but not imported by instances
    "data_pipeline", "heron_apiserver", "heron_cli", "heron_scheduler", "heron_tracker", "metrics_manager",
    "stream_manager", "topology_master",
    "benchmarks", "conftest", "deploy", "docs", "examples", "protos", "setup", "test", "tests",
))  # fmt: skip


class LocatedTopology(NamedTuple):
    """Topology and the variable that holds it; ``path`` is its name in the module, dotted if nested."""

    module: str
    path: str
    topology: Any

    @property
    def identifier(self) -> str:
        """Name of the topology's variable."""
        return self.path.rpartition(".")[2]

    def definition(self, name: str | None) -> Any:
        """Return its ``definition()``, passing ``variable`` if it has such a parameter."""
        ask = self.topology.definition
        if "variable" in inspect.signature(ask).parameters:
            return ask(name, variable=f"{self.module}:{self.path}")
        return ask(name)


def find_topology(file: Path, topology: str | None) -> LocatedTopology:
    """Return the topology of this name, or the only one.

    Raises:
        TopologyNotFound: The topology does not exist, or is ambiguous.
        TopologyError: The file cannot be used as a module.
        BaseException: Whatever the user's code raises.
    """
    if file.is_dir():
        return _in_folder(file, topology)
    if file.suffix == ".py" and file.is_file():
        module = import_file(file)
        if topology is not None:
            stem, colon, name = topology.rpartition(":")
            topology = name if colon and stem == file.stem else topology
        return _in_module(module, topology, file.name)
    if file.exists():
        raise TopologyNotFound(f"{file} is neither a .py file nor a folder")
    raise TopologyNotFound(f"no such file: {file}")


def import_file(file: Path) -> ModuleType:
    """Import one .py file under its stem.

    Raises:
        TopologyError: The name is not that of a module of its own.
    """
    name = file.stem
    if "." in name or not name.strip() or ":" in name:
        raise TopologyError(f"invalid module name {file.name!r}; rename the file, without '.' and ':'")
    if other := _conflict(name, file):
        raise TopologyError(
            f"a module {name!r} already exists ({other}), and instances would import it instead of {file.name}; "
            "rename the file"
        )
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(name, None)
        package = _package_of(file, error) if isinstance(error, ImportError) else ""
        if package:
            raise TopologyError(f"{file.name} cannot be imported alone ({error}): {package}") from error
        raise
    return module


def _package_of(file: Path, error: ImportError) -> str:
    """Return a hint if the file is a part of a package and imports other parts of it, otherwise ""."""
    root, parts = file.resolve().parent, [file.stem]
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    beside = {entry.stem if entry.suffix == ".py" else entry.name for entry in file.resolve().parent.iterdir()}
    first = (error.name or "").partition(".")[0]
    if len(parts) == 1 or not ("relative import" in str(error) or first in {parts[0], *beside}):
        return ""
    return f"it is a part of the package {parts[0]}; submit that: FILE {root / parts[0]}, then {'.'.join(parts)}:NAME"


def topologies_in(module: ModuleType) -> dict[str, Any]:
    """Return the topologies that the module holds by public names: classes, builders, programs."""
    topologies: dict[str, Any] = {}
    for name, value in vars(module).items():
        if name.startswith("_") or any(value is other for other in topologies.values()):
            continue
        if isinstance(value, type):
            own = value.__module__ == module.__name__ or value.__module__.startswith(module.__name__ + ".")
            if own and issubclass(value, Topology) and value.has_components():
                topologies[name] = value
        elif _defines(value):
            topologies[name] = value
    return topologies


def _defines(value: Any) -> bool:
    """Return True for a topology class or an object with a method ``definition``, without running user code."""
    if isinstance(value, type):
        method = inspect.getattr_static(value, "definition", None)
        return isinstance(method, classmethod | staticmethod)
    return not isinstance(value, ModuleType) and callable(inspect.getattr_static(type(value), "definition", None))


def _in_module(module: ModuleType, name: str | None, shown: str) -> LocatedTopology:
    held = topologies_in(module)
    if name is None:
        if len(held) == 1:
            ((only, topology),) = held.items()
            return LocatedTopology(module.__name__, only, topology)
        if not held:
            raise TopologyNotFound(f"{shown} holds no topology: no subclass of Topology with components, no builder")
        raise TopologyNotFound(f"{shown} holds {len(held)} topologies; name one: {listing(held)}")
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
        if value is None:
            own = _own_names(held)
            called = [variable for variable, given in own.items() if given == name]
            if len(called) == 1:
                return LocatedTopology(module.__name__, called[0], held[called[0]])
            if called:
                raise TopologyNotFound(f"{shown} has several builders named {name!r}; name one: {listing(called)}")
            hint = did_you_mean(name, [*held, *own.values()]) or f"; it holds {listing(held)}"
            raise TopologyNotFound(f"{shown} has no topology {name!r}{hint}")
    if not _defines(value):
        kind = value.__mro__[1].__name__ if isinstance(value, type) else type(value).__name__
        raise TopologyNotFound(f"{name!r} in {shown} is a {kind}, not a topology; it holds {listing(held)}")
    return LocatedTopology(module.__name__, name, value)


def _own_names(held: dict[str, Any]) -> dict[str, str]:
    """Return variables whose builder was given another name, with that name."""
    names = {variable: getattr(value, "name", None) for variable, value in held.items() if not isinstance(value, type)}
    return {variable: name for variable, name in names.items() if isinstance(name, str) and name and name != variable}


def _in_folder(folder: Path, topology: str | None) -> LocatedTopology:
    root = folder.parent if (folder / "__init__.py").is_file() else folder
    modules = {folder.name: folder / "__init__.py"} if root is not folder else dict(_modules_of(folder))
    for name in modules:
        _refuse_shadow(name, modules[name])
    sys.path[:0] = import_paths(root)
    importlib.invalidate_caches()
    module, wanted = _split(root, modules, topology, folder.name)
    return _in_module(importlib.import_module(module), wanted, module)


def _split(root: Path, modules: dict[str, Path], topology: str | None, shown: str) -> tuple[str, str | None]:
    """Return the module and the name in it, None for the only one."""
    if topology is None:
        shipped = [name for name in modules if name not in _NOT_SHOWN]
        if len(shipped) == 1:
            return shipped[0], None
        likely = [f"{module}:{name}" for module, name in _names(root, modules) if name.endswith("Topology")]
        raise TopologyNotFound(
            f"{shown} holds the modules {listing(shipped)}; name one as MODULE:CLASS"
            + (f", perhaps {listing(likely)}" if likely else "")
        )
    module, colon, name = topology.partition(":")
    if colon:
        if not _is_module(root, module):
            raise TopologyNotFound(f"{shown} has no module {module!r}{did_you_mean(module, modules)}")
        return module, name
    if _is_module(root, topology):
        return topology, None
    module, _, name = topology.rpartition(".")
    if module and _is_module(root, module):
        return module, name
    known = list(_names(root, modules))
    holders = sorted({module for module, name in known if name == topology})
    if len(holders) == 1:
        return holders[0], topology
    if holders:
        raise TopologyNotFound(
            f"{shown} has {topology!r} in several modules; name one: {listing(f'{m}:{topology}' for m in holders)}"
        )
    shipped = [name for name in modules if name not in _NOT_SHOWN]
    if len(shipped) == 1 and not module:
        return shipped[0], topology  # a builder's own name may be this
    names = [name for _, name in known] + list(modules)
    raise TopologyNotFound(f"{shown} has neither a module nor a class {topology!r}{did_you_mean(topology, names)}")


def _is_module(root: Path, dotted: str) -> bool:
    place = root.joinpath(*dotted.split("."))
    return dotted != "" and (place.with_name(place.name + ".py").is_file() or (place / "__init__.py").is_file())


def _modules_of(folder: Path) -> Iterator[tuple[str, Path]]:
    for entry in sorted(folder.iterdir()):
        if entry.suffix == ".py" and entry.is_file():
            yield entry.stem, entry
        elif (entry / "__init__.py").is_file():
            yield entry.name, entry / "__init__.py"


def _refuse_shadow(name: str, file: Path) -> None:
    if name not in _NOT_SHOWN and (other := _conflict(name, file)):
        raise TopologyError(
            f"the package has a module {name!r}, and so has Python or Heronry ({other}); "
            "one of them would hide the other: rename yours"
        )


def _conflict(name: str, file: Path) -> str:
    """Return the origin of another module `name` that an instance or this process may import, or "" if none exists."""
    if name in FREE_NAMES and name not in sys.modules:  # the driver of a Spark run has imported data_pipeline
        return ""
    spec = importlib.util.find_spec(name)
    if spec is None or (spec.origin and Path(spec.origin).resolve() == file.resolve()):
        return ""
    return spec.origin or "built in"


def _names(root: Path, modules: dict[str, Path]) -> Iterator[tuple[str, str]]:
    """Yield module and name of every top-level class and variable of a package, without importing it."""
    files: list[Path] = []
    for file in modules.values():
        files += sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]
    for file in files[:_MAX_SCANNED]:
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue  # it will be reported if it is the one that is wanted
        parts = file.relative_to(root).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                yield module, node.name
            elif isinstance(node, ast.Assign):
                yield from ((module, target.id) for target in node.targets if isinstance(target, ast.Name))
