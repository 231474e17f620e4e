"""Metrics query language compared with a naive evaluator of single points, and error messages."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_tracker.core import query_evaluation
from heron_tracker.core.query_evaluation import MINUTE, MetricSeries, QueryResult, evaluate
from heron_tracker.core.query_language import (
    FOLDS,
    JOINS,
    MAX_DEPTH,
    MAX_LENGTH,
    ConstantQuery,
    DefaultQuery,
    FoldQuery,
    JoinQuery,
    QueryError,
    QueryNode,
    RateQuery,
    TimeSeries,
    TopKQuery,
    leaves,
    parse,
)

START, END = 6000, 6000 + 5 * MINUTE
INSTANCES = ("container_1_word_1", "container_1_word_2", "container_2_word_3")
LEAVES = (
    TimeSeries("word", "*", "__emit-count/default"),
    TimeSeries("word", "*", "__execute-count/*"),
    TimeSeries("word", INSTANCES[0], "__emit-count/default"),
)

numbers = st.integers(-50, 50).map(float)
points = st.dictionaries(st.sampled_from(range(START - 4 * MINUTE, END + 2 * MINUTE, MINUTE)), numbers)


@st.composite
def data(draw: st.DrawFn) -> dict[TimeSeries, tuple[MetricSeries, ...]]:
    everybody = draw(st.lists(st.sampled_from(INSTANCES), unique=True))
    labelled = [(i, label) for i in everybody for label in draw(st.sets(st.sampled_from(("a", "b"))))]
    return {
        LEAVES[0]: tuple(MetricSeries(draw(points), i) for i in everybody),
        LEAVES[1]: tuple(MetricSeries(draw(points), i, label) for i, label in labelled),
        LEAVES[2]: tuple(MetricSeries(draw(points), INSTANCES[0]) for _ in range(draw(st.integers(0, 1)))),
    }


def operands(inner: st.SearchStrategy[QueryNode]) -> st.SearchStrategy[tuple[QueryNode, ...]]:
    return st.lists(inner, min_size=1, max_size=3).map(tuple)


series_nodes = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.builds(DefaultQuery, numbers, inner),
        st.builds(FoldQuery, st.sampled_from(FOLDS), operands(inner | st.builds(ConstantQuery, numbers))),
        st.builds(FoldQuery, st.just("PERCENTILE"), operands(inner), st.integers(0, 100).map(float)),
        st.builds(JoinQuery, st.sampled_from(JOINS), inner, inner | st.builds(ConstantQuery, numbers)),
        st.builds(RateQuery, inner),
        st.builds(TopKQuery, st.integers(1, 3), inner),
    ),
    max_leaves=6,
)  # fmt: skip


def text_of(node: QueryNode) -> str:
    """Return a node as query text."""
    match node:
        case ConstantQuery(value):
            return f"{value!r}"
        case TimeSeries(component, instance, metric):
            return f"TS({component}, {instance}, {metric})"
        case DefaultQuery(value, operand):
            return f"DEFAULT({value!r}, {text_of(operand)})"
        case FoldQuery("PERCENTILE", operands, q):
            return f"PERCENTILE({q!r}, {', '.join(map(text_of, operands))})"
        case FoldQuery(operator, operands):
            return f"{operator}( {','.join(map(text_of, operands))} )"
        case JoinQuery(operator, left, right):
            return f"{operator}({text_of(left)},{text_of(right)})"
        case RateQuery(operand):
            return f"RATE({text_of(operand)})"
        case TopKQuery(k, operand):
            return f"TOPK({k},{text_of(operand)})"


Named = dict[tuple[str, str], Callable[[int], float | None]]


class Naive:
    """Slow, simple evaluator in which every series is a function of the minute, independent of the tested code."""

    def __init__(self, found: dict[TimeSeries, tuple[MetricSeries, ...]], first: int) -> None:
        self.found = found
        self.first = first

    def of(self, node: QueryNode, first: int) -> tuple[list[tuple[str, str, Callable[[int], float | None]]], bool]:
        if isinstance(node, ConstantQuery):
            return [("", "", lambda t: node.value if t >= first else None)], False
        if isinstance(node, TimeSeries):
            return [(s.instance, s.label, self.point(s, first)) for s in self.found[node]], "*" in node.instance
        if isinstance(node, DefaultQuery):
            inner, several = self.of(node.operand, first)
            if not inner:
                return [("", "", lambda t: node.value if t >= first else None)], False
            return [(i, n, self.default(f, node.value, first)) for i, n, f in inner], several
        if isinstance(node, FoldQuery):
            inner = [f for o in node.operands for _, _, f in self.of(o, first)[0]]
            return [("", "", self.fold(node, inner, first))], False
        if isinstance(node, RateQuery):
            inner, several = self.of(node.operand, first)
            return [(i, n, self.rate(f)) for i, n, f in inner], several
        if isinstance(node, TopKQuery):
            inner, several = self.of(node.operand, first)

            def weight(item: tuple[str, str, Callable[[int], float | None]]) -> tuple[float, str, str]:
                present = (v for t in range(first, END + 1, MINUTE) if (v := item[2](t)) is not None)
                return (-math.fsum(present), *item[:2])

            return sorted(inner, key=weight)[: node.k], several
        assert isinstance(node, JoinQuery)
        left, several_left = self.of(node.left, first)
        right, several_right = self.of(node.right, first)
        joined = []
        for a in left:
            for b in right:
                both = several_left and several_right
                if both and (a[0] != b[0] or (a[1] and b[1] and a[1] != b[1])):
                    continue
                named = b if several_right and not several_left else a
                label = (a[1] or b[1]) if both else named[1]
                joined.append((named[0], label, self.join(node.operator, a[2], b[2])))
        return joined, several_left or several_right

    def point(self, series: MetricSeries, first: int) -> Callable[[int], float | None]:
        return lambda t: series.points.get(t) if first <= t <= END else None

    def default(self, f: Callable[[int], float | None], value: float, first: int) -> Callable[[int], float | None]:
        return lambda t: (value if t >= first else None) if f(t) is None else f(t)

    def rate(self, f: Callable[[int], float | None]) -> Callable[[int], float | None]:
        def change(t: int) -> float | None:
            now, before = f(t), f(t - MINUTE)
            return None if now is None or before is None else now - before

        return change

    def fold(
        self, node: FoldQuery, inner: list[Callable[[int], float | None]], first: int
    ) -> Callable[[int], float | None]:
        def value(t: int) -> float | None:
            values = sorted(v for f in inner if (v := f(t)) is not None)
            if t < first:
                return None
            if node.operator == "SUM":
                return math.fsum(values)
            if node.operator == "COUNT":
                return len(values)
            if not values:
                return None
            return {
                "MAX": values[-1], "MIN": values[0], "AVG": math.fsum(values) / len(values),
                "PERCENTILE": values[int(node.q * (len(values) - 1) / 100)],
            }[node.operator]  # fmt: skip

        return value

    def join(
        self, operator: str, f: Callable[[int], float | None], g: Callable[[int], float | None]
    ) -> Callable[[int], float | None]:
        def value(t: int) -> float | None:
            a, b = f(t), g(t)
            if a is None or b is None or (operator == "DIVIDE" and b == 0):
                return None
            return {"SUBTRACT": a - b, "MULTIPLY": a * b, "DIVIDE": a / b if b else 0}[operator]

        return value


def depth_of_rates(node: QueryNode) -> int:
    match node:
        case RateQuery(operand):
            return 1 + depth_of_rates(operand)
        case DefaultQuery(_, operand) | TopKQuery(_, operand):
            return depth_of_rates(operand)
        case FoldQuery(_, operands):
            return max(map(depth_of_rates, operands))
        case JoinQuery(_, left, right):
            return max(depth_of_rates(left), depth_of_rates(right))
    return 0


@given(series_nodes)
def test_query_text_parses_to_its_tree(node: QueryNode) -> None:
    assert parse(text_of(node)) == node
    assert set(leaves(node)) <= set(LEAVES)


@given(series_nodes, data())
def test_every_point_equals_the_naive_evaluation(
    node: QueryNode, found: dict[TimeSeries, tuple[MetricSeries, ...]]
) -> None:
    result = evaluate(node, found.__getitem__, START, END)
    first = START - MINUTE * depth_of_rates(node)
    expected, several = Naive(found, first).of(node, first)
    assert result.multivariate == several
    assert [(s.instance, s.label) for s in result.series] == [(i, n) for i, n, _ in expected]
    for series, (_, _, value) in zip(result.series, expected, strict=True):
        wanted = {t: v for t in range(START, END + 1, MINUTE) if (v := value(t)) is not None and math.isfinite(v)}
        assert series.points == pytest.approx(wanted)


def test_percentile_includes_numbers_and_takes_the_lower_neighbour() -> None:
    series = [MetricSeries({START: 1.0}, "i"), MetricSeries({START: 3.0}, "j")]
    result = evaluate(parse("PERCENTILE(50, TS(a,*,b), 2)"), lambda _: series, START, START)
    assert result == QueryResult((MetricSeries({START: 2.0}),))


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("", "missing at 0"),
        ("5", "is a number"),
        ("SUM()", "an operand is missing"),
        ("sum(TS(a,b,c))", "did you mean SUM"),
        ("FOO(TS(a,b,c))", "not an operator"),
        ("TS(a,b)", "',' and one more"),
        ("TS(a,,c)", "a name or number is missing"),
        ("TS(a,b,c", "')' is missing"),
        ("TS(a,b,c) TS(a,b,c)", "follows the end"),
        ("DIVIDE(1,2,3)", "too many operands"),
        ("RATE(3)", "takes a series"),
        ("TOPK(0,TS(a,b,c))", "not a whole number"),
        ("TOPK(1.5,TS(a,b,c))", "not a whole number"),
        ("PERCENTILE(101,TS(a,b,c))", "between 0 and 100"),
        ("SUM(nan, TS(a,b,c))", "not finite"),
        ('TS(a,"b,c)', "not closed"),
        ("SUM(" * (MAX_DEPTH + 2) + "1" + ")" * (MAX_DEPTH + 2), "deep"),
        ("SUM(" + ",".join(["1"] * 300) + ")", "at most"),
        ("SUM(" + "1" * MAX_LENGTH + ")", "characters"),
    ],
)
def test_invalid_query_is_rejected_with_its_reason(query: str, why: str) -> None:
    with pytest.raises(QueryError, match=r".*") as caught:
        parse(query)
    assert why in str(caught.value)


MANY = [MetricSeries(dict.fromkeys(range(0, 3 * 3600, MINUTE), 1.0), f"i{n}", f"l{n}") for n in range(1200)]
COSTLY = {
    "leaves": "SUM(" + ",".join(["TS(*,*,*)"] * 190) + ")",
    "joins": "MULTIPLY(TS(*,*,*),TS(*,*,*))",
    "defaults": "DEFAULT(1," * 20 + "TS(*,*,*)" + ")" * 20,
    "rates": "RATE(" * 22 + "TS(*,*,*)" + ")" * 22,
    "tops": "TOPK(9," * 22 + "TS(*,*,*)" + ")" * 22,
    "numbers": "SUM(" + ",".join("123456789") * 20 + ")",
    "answer": "TS(*,*,*)",
}


@pytest.mark.parametrize("what", COSTLY)
def test_query_work_is_bounded(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    series = [MetricSeries(s.points) for s in MANY] if what == "joins" else MANY  # all of them match each other
    monkeypatch.setattr(query_evaluation, "MAX_ANSWER_POINTS", 100_000)
    monkeypatch.setattr(query_evaluation, "MAX_POINTS", 1000 if what in ("numbers", "tops") else 1_000_000)
    with pytest.raises(QueryError, match="points"):
        evaluate(parse(COSTLY[what]), lambda _: series, 0, 3 * 3600)


def test_query_over_a_whole_topology_is_within_the_bound() -> None:
    assert len(evaluate(parse("TS(*,*,*)"), lambda _: MANY, 0, 3 * 3600).series) == len(MANY)
    assert evaluate(parse("SUM(TS(*,*,*),TS(*,*,*))"), lambda _: MANY, 0, 0).series[0].points == {0: 2400.0}


HUGE = (MetricSeries({0: 1e308, 60: 1.0}, "i"), MetricSeries({0: 1e308}, "j"))


@pytest.mark.parametrize(
    ("query", "points"),
    [
        ("SUM(1e308,1e308)", {}),
        ("AVG(1e308,1e308)", {0: 1e308, 60: 1e308}),
        ("AVG(1e308,-1e308)", {0: 0.0, 60: 0.0}),
        ("SUM(TS(a,*,b))", {60: 1.0}),
        ("SUM(SUM(1e308,1e308), SUBTRACT(0,SUM(1e308,1e308)))", {}),
        ("AVG(SUM(1e308,1e308), SUBTRACT(0,SUM(1e308,1e308)))", {}),
        ("PERCENTILE(50,SUM(1e308,1e308),1)", {0: 1.0, 60: 1.0}),
        ("DIVIDE(1e308,1e-308)", {}),
        ("TOPK(1,DEFAULT(1e308,TS(a,*,b)))", {0: 1e308, 60: 1e308}),
    ],
)
def test_minutes_with_overflowing_values_are_empty(query: str, points: dict[int, float]) -> None:
    assert dict(evaluate(parse(query), lambda _: HUGE, 0, 60).series[0].points) == points


def test_quoted_names_keep_commas_and_parentheses() -> None:
    assert parse('TS("a,b", "(*)", c/d)') == TimeSeries("a,b", "(*)", "c/d")


@given(st.text(max_size=60))
def test_any_text_is_a_query_or_a_query_error(text: str) -> None:
    try:
        parse(text)
    except QueryError:
        pass
