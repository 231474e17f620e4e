"""Parser of the metrics query language: text to a tree.

A query is an operator with operands in parentheses, as in Heron's tracker::

    DIVIDE(SUM(TS(count, *, __fail-count/*)), SUM(TS(count, *, __execute-count/*)))

=====================================  =================================================================
``TS(component, instance, metric)``    series of a metric, one point a minute; ``*`` in any name
``DEFAULT(number, series)``            the number replaces missing values
``SUM MAX MIN AVG COUNT (x, …)``       one series over all series of the operands, by minute
``PERCENTILE(q, x, …)``                the same, q from 0 to 100
``SUBTRACT MULTIPLY DIVIDE (a, b)``    minute by minute; series of instances are joined on the instance
``RATE(x)``                            the change since the minute before
``TOPK(k, x)``                         the k series with the largest sum
=====================================  =================================================================

A number is allowed in place of a series, except below RATE and TOPK. Names are separated by commas and parentheses; a
name that contains such a character is written in double quotes. Operators are in capitals, names are case-sensitive.
Limits: ``MAX_LENGTH`` characters, ``MAX_DEPTH`` levels, ``MAX_NODES`` operators and numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MAX_LENGTH = 4096
MAX_DEPTH = 24
MAX_NODES = 200
MAX_TOP = 10_000

FOLDS = ("SUM", "MAX", "MIN", "AVG", "COUNT")
JOINS = ("SUBTRACT", "MULTIPLY", "DIVIDE")
OPERATORS = ("TS", "DEFAULT", "PERCENTILE", "RATE", "TOPK", *FOLDS, *JOINS)


class QueryError(ValueError):
    """The query is invalid; the message gives position and reason."""


@dataclass(frozen=True, slots=True)
class ConstantQuery:
    """Constant at every minute."""

    value: float


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """Operator ``TS``: patterns of component, instance and metric."""

    component: str
    instance: str
    metric: str


@dataclass(frozen=True, slots=True)
class DefaultQuery:
    """Operator ``DEFAULT``."""

    value: float
    operand: QueryNode


@dataclass(frozen=True, slots=True)
class FoldQuery:
    """Operators ``SUM``, ``MAX``, ``MIN``, ``AVG``, ``COUNT`` and ``PERCENTILE`` (with ``q`` from 0 to 100)."""

    operator: str
    operands: tuple[QueryNode, ...]
    q: float = 0.0


@dataclass(frozen=True, slots=True)
class JoinQuery:
    """Operators ``SUBTRACT``, ``MULTIPLY`` and ``DIVIDE``."""

    operator: str
    left: QueryNode
    right: QueryNode


@dataclass(frozen=True, slots=True)
class RateQuery:
    """Operator ``RATE``."""

    operand: QueryNode


@dataclass(frozen=True, slots=True)
class TopKQuery:
    """Operator ``TOPK``."""

    k: int
    operand: QueryNode


QueryNode = ConstantQuery | TimeSeries | DefaultQuery | FoldQuery | JoinQuery | RateQuery | TopKQuery


def parse(text: str) -> QueryNode:
    """Parse a query. Raises QueryError."""
    if len(text) > MAX_LENGTH:
        raise QueryError(f"a query has at most {MAX_LENGTH} characters, this one has {len(text)}")
    parser = _Parser(text)
    node = parser.node(0)
    parser.end()
    if isinstance(node, ConstantQuery):
        raise QueryError("the query is a number; it needs at least one operator")
    return node


def leaves(node: QueryNode) -> list[TimeSeries]:
    """Return every TS of the tree once, in order of appearance."""
    series: list[TimeSeries] = []
    todo = [node]
    while todo:
        here = todo.pop()
        if isinstance(here, TimeSeries):
            if here not in series:
                series.append(here)
        elif not isinstance(here, ConstantQuery):
            todo.extend(reversed(children(here)))
    return series


def children(node: QueryNode) -> tuple[QueryNode, ...]:
    """Return the operands of a node."""
    if isinstance(node, FoldQuery):
        return node.operands
    if isinstance(node, JoinQuery):
        return (node.left, node.right)
    if isinstance(node, DefaultQuery | RateQuery | TopKQuery):
        return (node.operand,)
    return ()


def rate_depth(node: QueryNode) -> int:
    """Return the maximum nesting of RATE: the number of minutes required before the first."""
    below = max((rate_depth(child) for child in children(node)), default=0)
    return below + isinstance(node, RateQuery)


class _Parser:
    """Recursive-descent parser; ``_at`` is the position of the next token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._nodes = 0

    def node(self, depth: int) -> QueryNode:
        """Parse a number or an operator with its operands."""
        self._nodes += 1
        if depth > MAX_DEPTH:
            raise QueryError(f"operators may be nested {MAX_DEPTH} deep")
        if self._nodes > MAX_NODES:
            raise QueryError(f"a query has at most {MAX_NODES} operators and numbers")
        began = self._skip_spaces()
        word = self._word()
        if not self._take("("):
            return ConstantQuery(_number(word, began))
        if word not in OPERATORS:
            hint = f"; did you mean {word.upper()}?" if word.upper() in OPERATORS else ""
            raise QueryError(f"{word!r} at {began} is not an operator{hint}; valid are {', '.join(OPERATORS)}.")
        node = self._operator(word, began, depth + 1)
        if not self._take(")"):
            raise QueryError(f"{word} at {began}: ')' is missing, or there are too many operands")
        return node

    def end(self) -> None:
        """Check that nothing follows. Raises QueryError."""
        if self._skip_spaces() < len(self._text):
            raise QueryError(f"{self._text[self._at :][:20]!r} at {self._at} follows the end of the query")

    def _operator(self, word: str, began: int, depth: int) -> QueryNode:
        if word == "TS":
            return TimeSeries(self._name(word), self._next_name(word), self._next_name(word))
        if word == "DEFAULT":
            value = _number(self._name(word), began)
            return DefaultQuery(value, self._next(word, depth))
        if word == "PERCENTILE":
            q = _number(self._name(word), began)
            if not 0 <= q <= 100:
                raise QueryError(f"PERCENTILE at {began}: {q:g} is not between 0 and 100")
            return FoldQuery(word, self._rest(word, self._next(word, depth), depth), q)
        if word == "TOPK":
            k = _number(self._name(word), began)
            if k != int(k) or not 1 <= k <= MAX_TOP:
                raise QueryError(f"TOPK at {began}: {k:g} is not a whole number from 1 to {MAX_TOP}")
            return TopKQuery(int(k), self._series(word, self._next(word, depth), began))
        if word == "RATE":
            return RateQuery(self._series(word, self.node(depth), began))
        first = self.node(depth)
        if word in FOLDS:
            return FoldQuery(word, self._rest(word, first, depth))
        return JoinQuery(word, first, self._next(word, depth))

    def _series(self, word: str, node: QueryNode, began: int) -> QueryNode:
        if isinstance(node, ConstantQuery):
            raise QueryError(f"{word} at {began} takes a series, not a number")
        return node

    def _rest(self, word: str, first: QueryNode, depth: int) -> tuple[QueryNode, ...]:
        operands = [first]
        while self._take(","):
            operands.append(self.node(depth))
        return tuple(operands)

    def _next(self, word: str, depth: int) -> QueryNode:
        self._comma(word)
        return self.node(depth)

    def _next_name(self, word: str) -> str:
        self._comma(word)
        return self._name(word)

    def _name(self, word: str) -> str:
        began = self._skip_spaces()
        name = self._word()
        if not name:
            raise QueryError(f"{word}: a name or number is missing at {began}")
        return name

    def _comma(self, word: str) -> None:
        if not self._take(","):
            raise QueryError(f"{word}: ',' and one more operand are missing at {self._at}")

    def _take(self, sign: str) -> bool:
        if self._skip_spaces() < len(self._text) and self._text[self._at] == sign:
            self._at += 1
            return True
        return False

    def _skip_spaces(self) -> int:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._at

    def _word(self) -> str:
        began = self._at
        if self._text[began : began + 1] == '"':
            closing = self._text.find('"', began + 1)
            if closing < 0:
                raise QueryError(f"the quote that opens at {began} is not closed")
            self._at = closing + 1
            return self._text[began + 1 : closing]
        while self._at < len(self._text) and self._text[self._at] not in ',()"':
            self._at += 1
        return self._text[began : self._at].strip()


def _number(word: str, at: int) -> float:
    try:
        value = float(word)
    except ValueError:
        what = f"{word!r} at {at} is not a number" if word else f"an operand is missing at {at}"
        raise QueryError(f"{what}, nor an operator with '('") from None
    if not math.isfinite(value):
        raise QueryError(f"{word!r} at {at} is not finite")
    return value
