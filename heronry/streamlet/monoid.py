"""Monoids: how values of one key become one result, in any order and in any groups.

A monoid is ``zero`` and ``add``, and optionally ``lift`` (a record's value to an accumulator) and ``finish`` (an
accumulator to the result). An engine folds values into accumulators wherever they are, and adds accumulators wherever
they meet, so ``add`` must be associative and commutative and ``zero`` neutral; ``check_laws`` tries that on samples.
``add`` may change and return its first argument (``zero`` is then a function that makes a new one), never its second.

The built-in ones carry ``builtin``, a name by which an engine may compute them its own way (SQL), and accumulators that
``pack`` to plain data, so that a process without user code can also add them (``by_name``). None values are left out by
``sum_ min_ max_ mean top_k distinct``, as SQL does, and a key with no other values has the result None (0 for
``distinct``, () for ``top_k``); ``count`` counts records, None or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, Generic, TypeVar, overload

from heron_runtime.model.keys import encode
from heronry.api.errors import TopologyError
from heronry.streamlet.exact import add_exactly, divide, pack_sum, round_sum, unpack_sum
from heronry.streamlet.sketch import DEFAULT_LG_K, DistinctSketch

A = TypeVar("A")
V = TypeVar("V")
R = TypeVar("R")
V_contra = TypeVar("V_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


def same(value: Any) -> Any:
    """Return the argument."""
    return value


@dataclass(frozen=True, slots=True)
class Monoid(Generic[V_contra, R_co]):
    """Aggregate of values to a result; the module docstring has the rules.

    ``fold(acc, value)`` must equal ``add(acc, lift(value))``; it may be faster.
    """

    name: str
    zero: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    finish: Callable[[Any], R_co] = same
    lift: Callable[[V_contra], Any] = same
    fold: Callable[[Any, V_contra], Any] | None = None
    pack: Callable[[Any], Any] = same  # accumulator to plain data (None, bool, int, float, str, bytes, list, dict)
    unpack: Callable[[Any], Any] = same
    builtin: str | None = None
    parameters: tuple[tuple[str, Any], ...] = field(default=())

    def folded(self, values: Iterable[V_contra]) -> Any:
        """The accumulator of these values."""
        acc = self.zero()
        if self.fold is not None:
            for value in values:
                acc = self.fold(acc, value)
            return acc
        for value in values:
            acc = self.add(acc, self.lift(value))
        return acc

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value}' for key, value in self.parameters)})"


@overload
def monoid(
    zero: Any, add: Callable[[A, A], A], finish: None = None, lift: None = None, name: str | None = None
) -> Monoid[A, A]: ...
@overload
def monoid(
    zero: Any, add: Callable[[A, A], A], finish: Callable[[A], R], lift: None = None, name: str | None = None
) -> Monoid[A, R]: ...
@overload
def monoid(
    zero: Any,
    add: Callable[[A, A], A],
    finish: None = None,
    *,
    lift: Callable[[V], A],
    name: str | None = None,
) -> Monoid[V, A]: ...
@overload
def monoid(
    zero: Any, add: Callable[[A, A], A], finish: Callable[[A], R], lift: Callable[[V], A], name: str | None = None
) -> Monoid[V, R]: ...
def monoid(
    zero: Any,
    add: Callable[[Any, Any], Any],
    finish: Callable[[Any], Any] | None = None,
    lift: Callable[[Any], Any] | None = None,
    name: str | None = None,
) -> Monoid[Any, Any]:
    """Return a monoid.

    Args:
        zero: The neutral accumulator, or a function that returns a new one (``dict``, ``set``, ``Counter``).
        add: Function that combines two accumulators; associative and commutative.
        finish: Function of an accumulator that returns the result.
        lift: Function of a value that returns its accumulator.
        name: Name in plans. Default: the name of ``add``.

    Raises:
        TypeError: An argument is not a function, or ``zero`` is a mutable value.

    Examples:
        >>> from heronry.streamlet import monoid
        >>> product = monoid(1, lambda a, b: a * b, name="product")
        >>> product.finish(product.folded([2, 3, 4]))
        24
    """
    for role, function in (("add", add), ("finish", finish or same), ("lift", lift or same)):
        if not callable(function):
            raise TypeError(f"{role} of a monoid is {function!r}; write a function")
    if isinstance(zero, dict | list | set):
        raise TypeError(f"zero is {zero!r}, which every key would share; write {type(zero).__name__} without brackets")
    make = zero if callable(zero) else _Constant(zero)
    named = name or str(getattr(add, "__name__", "")) or type(add).__name__
    return Monoid(named if named.isidentifier() else "monoid", make, add, finish or same, lift or same)


@dataclass(frozen=True, slots=True)
class _Semigroup:
    """``add`` over values alone: the accumulator is () or (value,)."""

    function: Callable[[Any, Any], Any]

    def add(self, a: Any, b: Any) -> Any:
        return (self.function(a[0], b[0]),) if a and b else a or b


def _wrap(value: Any) -> tuple[Any]:
    return (value,)


def _unwrap(acc: Any) -> Any:
    return acc[0]


def monoid_of_function(add: Callable[[A, A], A]) -> Monoid[A, A]:
    """Return a monoid for a function of two values without a neutral value (``max``, ``operator.or_``)."""
    name = str(getattr(add, "__name__", ""))
    return Monoid(
        name if name.isidentifier() else "reduce", tuple, _Semigroup(add).add, _unwrap, _wrap, pack=_to_list,
        unpack=_to_tuple,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Constant:
    value: Any

    def __call__(self) -> Any:
        return self.value


# The built-in ones. None, as an accumulator, is "no value yet".


def _nothing() -> None:
    return None


def _zero() -> int:
    return 0


def _one(value: Any) -> int:
    return 1


def _count_fold(acc: int, value: Any) -> int:
    return acc + 1


def _plus(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else add_exactly(a, b)


def _number(acc: Any) -> Any:
    """Return the sum as a number, also where the only value was a truth value."""
    return int(acc) if acc is True or acc is False else round_sum(acc)


def _least(a: Any, b: Any) -> Any:
    """NaN is greater than every other number, as in SQL."""
    if a is None or b is None:
        return b if a is None else a
    if a != a or b != b:
        return b if a != a else a
    return b if b < a else a


def _greatest(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    if a != a or b != b:
        return a if a != a else b
    return b if b > a else a


def _sum_and_count(value: Any) -> tuple[Any, int]:
    return (0, 0) if value is None else (value, 1)


def _add_pairs(a: Any, b: Any) -> tuple[Any, int]:
    return (add_exactly(a[0], b[0]), a[1] + b[1])


def _no_pairs() -> tuple[int, int]:
    return (0, 0)


def _quotient(acc: Any) -> Any:
    return divide(*acc) if acc[1] else None


def _pack_pair(acc: Any) -> list[Any]:
    return [pack_sum(acc[0]), acc[1]]


def _unpack_pair(data: Any) -> tuple[Any, int]:
    return unpack_sum(data[0]), data[1]


def _to_list(acc: Any) -> list[Any]:
    return list(acc)


def _to_tuple(acc: Any) -> tuple[Any, ...]:
    return tuple(acc)


def count() -> Monoid[Any, int]:
    """Count records."""
    return Monoid("count", _zero, _plus, lift=_one, fold=_count_fold, builtin="count")


def sum_() -> Monoid[Any, Any]:
    """Sum values; True counts as 1.

    Sums are exact and do not depend on the order. A sum of floats is rounded once, at the end.
    """
    return Monoid("sum", _nothing, _plus, _number, pack=pack_sum, unpack=unpack_sum, builtin="sum")


def min_() -> Monoid[Any, Any]:
    """Return the minimum. NaN counts as greater than any number."""
    return Monoid("min", _nothing, _least, builtin="min")


def max_() -> Monoid[Any, Any]:
    """Return the maximum. NaN counts as greater than any number."""
    return Monoid("max", _nothing, _greatest, builtin="max")


def mean() -> Monoid[Any, Any]:
    """Return the arithmetic mean: the exact sum, divided by the number of values (true division)."""
    return Monoid(
        "mean", _no_pairs, _add_pairs, _quotient, _sum_and_count, pack=_pack_pair, unpack=_unpack_pair,
        builtin="mean",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _TopK:
    """The k greatest, in order. Ranks may be str, which cannot be negated, hence two stable sorts."""

    k: int
    by: str | int | None

    def rank(self, value: Any) -> tuple[bool, Any]:
        """Return the rank of a value; NaN is greater than every number."""
        rank_value = value
        if self.by is not None:
            rank_value = (
                value[self.by] if isinstance(self.by, int) or isinstance(value, dict) else getattr(value, self.by)
            )
        return (False, rank_value) if rank_value == rank_value else (True, 0)

    def lift(self, value: Any) -> tuple[Any, ...]:
        return () if value is None else (value,)

    def add(self, a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        if not b or (len(a) == self.k and len(b) == 1 and self.rank(b[0]) < self.rank(a[-1])):
            return a  # the common case of a long stream
        # Canonical encodings are the last word among equals, so the k kept do not depend on the order of arrival.
        by_key = sorted((*a, *b), key=_canonical)
        return tuple(sorted(by_key, key=self.rank, reverse=True)[: self.k])


def _canonical(value: Any) -> bytes:
    return encode(_freeze(value))


def _freeze(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted((str(key), _freeze(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(_freeze, value))
    return value


def top_k(k: int, by: str | int | None = None) -> Monoid[Any, tuple[Any, ...]]:
    """Return the k greatest values as a tuple, greatest first.

    Equal values count several times. NaN is the greatest. Among equal ranks the value with the lesser canonical key
    comes first.

    Args:
        k: Number of values.
        by: Field or place to rank by. Default: the value itself.

    Raises:
        TopologyError: ``k`` is not a positive int.
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise TopologyError(f"top_k({k!r}): write how many, at least 1")
    best = _TopK(k, by)
    parameters = (("k", k), ("by", by))
    return Monoid(
        "top_k", tuple, best.add, lift=best.lift, pack=_to_list, unpack=_to_tuple, builtin="top_k",
        parameters=parameters,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Distinct:
    lg_k: int

    def zero(self) -> DistinctSketch:
        return DistinctSketch(self.lg_k)

    def lift(self, value: Any) -> DistinctSketch:
        return self.fold(DistinctSketch(self.lg_k), value)

    def fold(self, acc: DistinctSketch, value: Any) -> DistinctSketch:
        if value is not None:
            acc.update(encode(value))
        return acc

    def unpack(self, data: bytes) -> DistinctSketch:
        return DistinctSketch.from_bytes(data, self.lg_k)


def _merge(a: DistinctSketch, b: DistinctSketch) -> DistinctSketch:
    a.merge(b)
    return a


def distinct(lg_k: int = DEFAULT_LG_K) -> Monoid[Any, int]:
    """Estimate the number of different values (a theta sketch).

    Exact up to 2**lg_k values, then within 1/sqrt(2**lg_k) (one sigma). The result does not depend on the order or
    grouping of the values. Values must be keys (str, bytes, numbers, dates, tuples of these).

    Args:
        lg_k: Logarithm of the size of the sketch, 5 to 26.

    Raises:
        TopologyError: ``lg_k`` is out of range.
    """
    if isinstance(lg_k, bool) or not isinstance(lg_k, int) or not 5 <= lg_k <= 26:
        raise TopologyError(f"distinct(lg_k={lg_k!r}): write a whole number from 5 to 26")
    made = _Distinct(lg_k)
    return Monoid(
        "distinct", made.zero, _merge, DistinctSketch.estimate, made.lift, made.fold, DistinctSketch.to_bytes,
        made.unpack, "distinct", (("lg_k", lg_k),),
    )  # fmt: skip


_BUILTIN: dict[str, Callable[..., Monoid[Any, Any]]] = {
    "count": count,
    "sum": sum_,
    "min": min_,
    "max": max_,
    "mean": mean,
    "top_k": top_k,
    "distinct": distinct,
}


def builtin_monoid(name: str, parameters: dict[str, Any] | None = None) -> Monoid[Any, Any]:
    """Return a built-in monoid, to add packed accumulators without user code. Raises KeyError for an unknown name."""
    return _BUILTIN[name](**(parameters or {}))


def check_laws(tried: Monoid[V, Any], values: Iterable[V]) -> None:
    """Try ``zero`` neutral, ``add`` associative and commutative, on up to four of the values.

    Raises AssertionError that says which law does not hold. Results are compared after ``finish``, floats within 1e-9.
    """
    samples = list(values)[:4]

    def lifted(value: Any) -> Any:
        return tried.lift(value)

    def finish(acc: Any) -> Any:
        return tried.finish(acc)

    for value in samples:
        assert _equal(finish(tried.add(tried.zero(), lifted(value))), finish(lifted(value))), "zero + a differs from a"
        assert _equal(finish(tried.add(lifted(value), tried.zero())), finish(lifted(value))), "a + zero differs from a"
    whole = finish(tried.folded(samples))
    for order in permutations(samples):
        assert _equal(finish(tried.folded(order)), whole), f"add is not commutative over {order!r}"
        for cut in range(len(order) + 1):
            parts = tried.add(tried.folded(order[:cut]), tried.folded(order[cut:]))
            assert _equal(finish(parts), whole), f"add is not associative over {order!r} cut at {cut}"
            packed = tried.unpack(tried.pack(tried.folded(order)))
            assert _equal(finish(packed), whole), f"pack and unpack change the accumulator of {order!r}"


def _equal(a: Any, b: Any) -> bool:
    from heronry.streamlet.compare import close

    return close(a, b)
