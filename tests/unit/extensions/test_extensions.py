"""Extension points: built-in names, names of real distributions, and unknown, duplicate or broken ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import heron_runtime.extensions
from heron_runtime.extensions import ExtensionError, ExtensionPoint
from tests.support.distributions import write_distribution

POINT = ExtensionPoint("shape", "test.shapes", "on this table", {"square": "fractions:Fraction", "line": "math:pi"})
POINTS = [value for value in vars(heron_runtime.extensions).values() if isinstance(value, ExtensionPoint)]


def offer(folder: Path, name: str, shapes: dict[str, str], modules: dict[str, str] | None = None) -> str:
    return str(write_distribution(folder, name, {"test.shapes": shapes}, modules))


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.group)
def test_every_built_in_extension_can_be_loaded(point: ExtensionPoint) -> None:
    for name in point.built_in:
        assert callable(point.load(name)), name


def test_groups_have_a_common_prefix_and_are_unique() -> None:
    groups = [point.group for point in POINTS]
    assert len(set(groups)) == len(groups)
    assert all(group.startswith("heronry.") for group in groups)


def test_built_in_name_is_found_without_scanning_distributions() -> None:
    code = (
        "import sys; from heron_runtime.extensions import METRICS_SINKS; METRICS_SINKS.find('jsonlines');"
        "assert 'importlib.metadata' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_distribution_adds_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = {"shapes_of_one": "class Circle:\n    class Unit:\n        pass\n"}
    monkeypatch.syspath_prepend(offer(tmp_path, "one", {"circle": "shapes_of_one:Circle.Unit"}, module))
    assert POINT.find("circle") == "shapes_of_one:Circle.Unit"
    assert "shapes_of_one" not in sys.modules, "to find is not to import"
    assert POINT.load("circle").__qualname__ == "Circle.Unit"
    assert POINT.names() == ["circle", "line", "square"]


def test_built_in_name_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(offer(tmp_path, "one", {"line": "math:e"}))
    assert POINT.find("line") == "math:pi"


def test_unknown_name_suggests_the_nearest_and_the_place_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(offer(tmp_path, "one", {"circle": "nowhere:Circle"}))
    with pytest.raises(ExtensionError) as caught:
        POINT.load("cirle")
    assert caught.value.message == ("unknown shape 'cirle'; known: 'circle', 'line', 'square'; did you mean 'circle'?")
    assert "installed on this table, with the entry point group test.shapes" in caught.value.cure


def test_two_distributions_with_one_name_are_both_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        monkeypatch.syspath_prepend(offer(tmp_path / name, f"shapes-{name}", {"circle": "math:tau"}))
    for ask in (POINT.find, POINT.load):
        with pytest.raises(ExtensionError, match=r"'circle' is offered by shapes-one 1\.0 and by shapes-two 1\.0"):
            ask("circle")


def test_distribution_in_two_places_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("one", "math:e"), ("two", "math:tau")):
        monkeypatch.syspath_prepend(offer(tmp_path / name, "shapes", {"circle": value}))
    assert POINT.find("circle") == "math:tau", "the first on sys.path is the one that imports find, too"


@pytest.mark.parametrize(
    ("value", "text", "cause"),
    [
        ("no_such_module:Circle", "", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("broken_shapes:Circle", "raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("broken_shapes:Circle", "", "AttributeError: module 'broken_shapes' has no attribute 'Circle'"),
    ],
)
def test_broken_extension_is_reported_with_its_distribution(
    value: str, text: str, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "broken_shapes", raising=False)
    monkeypatch.syspath_prepend(offer(tmp_path, "shapes-of-mine", {"circle": value}, {"broken_shapes": text}))
    with pytest.raises(ExtensionError) as caught:
        POINT.load("circle")
    assert f"the shape 'circle' of shapes-of-mine 1.0 cannot be loaded from {value}: " in caught.value.message
    assert cause in caught.value.message
    assert caught.value.__cause__ is not None
    sys.modules.pop("broken_shapes", None)
