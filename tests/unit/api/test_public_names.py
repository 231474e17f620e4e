"""Every public name can be looked at: by ``help()``, by ``inspect``, and it says what it is."""

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
    """The public methods and properties that a class or one of its bases of ours defines."""
    for base in cls.__mro__:
        if base.__module__.startswith("heron"):
            for name, value in vars(base).items():
                function = getattr(value, "__func__", value)
                if not name.startswith("_") and (inspect.isfunction(function) or isinstance(value, property)):
                    yield f"{base.__name__}.{name}", value


@pytest.mark.parametrize("module", MODULES)
def test_a_module_can_be_looked_at(module: str) -> None:
    found = importlib.import_module(module)
    assert module in pydoc.render_doc(found)
    assert set(found.__all__) <= set(dir(found))
    inspect.getmembers(found)


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_public_name_can_be_looked_at(module: str, name: str) -> None:
    found = public(module, name)
    assert pydoc.render_doc(found)
    inspect.getmembers(found)
    inspect.getmembers_static(found)


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_public_class_or_function_says_what_it_is(module: str, name: str) -> None:
    found = public(module, name)
    if inspect.isclass(found):
        assert (found.__doc__ or "").strip()
        assert [where for where, value in own_functions(found) if not inspect.getdoc(value)] == []
    elif callable(found):
        assert inspect.getdoc(found)


@pytest.mark.parametrize("name", ["Spout", "Bolt", "BasicBolt", "BatchBolt"])
def test_a_component_without_a_runtime_can_be_looked_at(name: str) -> None:
    component = public("heronry", name)()
    assert "emit" in dict(inspect.getmembers(component))
    assert pydoc.render_doc(component)
