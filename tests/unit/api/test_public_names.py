"""Introspection of all public names by ``help()`` and ``inspect``, and their docstrings."""

from __future__ import annotations

import importlib
import inspect
import pydoc
from collections.abc import Iterator
from typing import Any

import pytest

MODULES = ("heronry", "heronry.streamlet", "heronry.testing")
NAMES = [(module, name) for module in MODULES for name in importlib.import_module(module).__all__]


def public(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def own_functions(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield public methods and properties defined by the class or its bases in this project."""
    for base in cls.__mro__:
        if base.__module__.startswith("heron"):
            for name, value in vars(base).items():
                function = getattr(value, "__func__", value)
                if not name.startswith("_") and (inspect.isfunction(function) or isinstance(value, property)):
                    yield f"{base.__name__}.{name}", value


@pytest.mark.parametrize("module", MODULES)
def test_module_supports_introspection(module: str) -> None:
    found = importlib.import_module(module)
    assert module in pydoc.render_doc(found)
    assert set(found.__all__) <= set(dir(found))
    inspect.getmembers(found)


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_public_name_supports_introspection(module: str, name: str) -> None:
    found = public(module, name)
    assert pydoc.render_doc(found)
    inspect.getmembers(found)
    inspect.getmembers_static(found)


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_public_class_or_function_has_a_docstring(module: str, name: str) -> None:
    found = public(module, name)
    if inspect.isclass(found):
        assert (found.__doc__ or "").strip()
        assert [where for where, value in own_functions(found) if not inspect.getdoc(value)] == []
    elif callable(found):
        assert inspect.getdoc(found)


@pytest.mark.parametrize("name", ["Spout", "Bolt", "BasicBolt", "BatchBolt"])
def test_component_without_a_runtime_supports_introspection(name: str) -> None:
    component = public("heronry", name)()
    assert "emit" in dict(inspect.getmembers(component))
    assert pydoc.render_doc(component)
