"""Mutants of the code of a file, and a seeded sample of them.

Theory of operation. Cosmic Ray's operators define where they can change a file and how. The sample draws a place first
and then one of its changes, so that a comparison with seven possible changes counts as much as a number with two.
Changes without an effect at run time are not mutants: annotations, docstrings, and code that compiles to the same
result. Also excluded are ``assert`` statements and methods called ``check``, which are the cores' own tests (weakening
them breaks nothing), and decorators of classes: no code does what a frozen dataclass rejects.
"""

from __future__ import annotations

import ast
import difflib
import random
import types
from collections.abc import Iterator
from functools import lru_cache

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from .mutant import ROOT, Mutant

#: These need a list of names, or (``==`` to ``is``) mostly change nothing for small numbers and enumerations.
LEFT_OUT = ("VariableReplacer", "VariableInserter", "_Eq_Is", "_NotEq_Is", "_Is_Eq", "_IsNot_NotEq", "_Not_Is")
Place = tuple[tuple[int, int], tuple[int, int]]


def sample(file: str, number: int, seed: int) -> list[Mutant]:
    """Return ``number`` mutants of ``file`` at different places (fewer if there are fewer places)."""
    source = (ROOT / file).read_text()
    untested = _own_tests(source)
    places = {place: ways for place, ways in _places(source).items() if place[0][0] not in untested}
    rng = random.Random(f"{seed} {file}")
    order = sorted(places)
    rng.shuffle(order)
    found: list[Mutant] = []
    for place in order:
        ways = places[place]
        rng.shuffle(ways)
        mutant = next((m for way in ways if (m := _mutant(file, source, place, *way)) is not None), None)
        if mutant is not None:
            found.append(mutant)
            if len(found) == number:
                break
    return found


def _places(source: str) -> dict[Place, list[tuple[str, int]]]:
    """Return each place that can be changed, with operators and the numbers of their occurrences there."""
    nodes = list(ast_nodes(get_ast(source)))
    places: dict[Place, list[tuple[str, int]]] = {}
    for name in operator_names():
        if any(name.endswith(part) or part + "Not" in name for part in LEFT_OUT):
            continue
        operator = get_operator(name)()
        positions = (position for node in nodes for position in operator.mutation_positions(node))
        for occurrence, place in enumerate(positions):
            places.setdefault(place, []).append((name, occurrence))
    return places


def _mutant(file: str, source: str, place: Place, operator: str, occurrence: int) -> Mutant | None:
    changed = mutate_code(source, get_operator(operator)(), occurrence)
    if changed is None or not _differs(source, changed):
        return None
    return Mutant(file, place[0][0], operator.removeprefix("core/"), changed, _change(source, changed))


def _change(source: str, changed: str) -> str:
    lines = difflib.unified_diff(source.splitlines(), changed.splitlines(), n=0, lineterm="")
    return "  ".join(f"{line[0]} {line[1:].strip()}" for line in lines if line[:3] not in ("---", "+++", "@@ "))


def _differs(source: str, changed: str) -> bool:
    try:
        return _code(source) != _code(changed)
    except SyntaxError:
        return False


@lru_cache(maxsize=2)
def _code(source: str) -> list[object]:
    """Return all code of a file that runs."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(value=None)
    ast.fix_missing_locations(tree)
    return list(_parts(compile(tree, "", "exec", dont_inherit=True, optimize=2)))


def _parts(code: types.CodeType) -> Iterator[object]:
    yield code.co_code, code.co_names, code.co_varnames, code.co_exceptiontable
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _parts(constant)
        else:
            yield repr(constant)


def _own_tests(source: str) -> set[int]:
    """Return the lines of the file's own assertions, and of decorators of classes."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            lines.update(decorator.lineno for decorator in node.decorator_list)
        own = isinstance(node, ast.FunctionDef) and node.name.strip("_").startswith("check")
        if own or isinstance(node, ast.Assert):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines
