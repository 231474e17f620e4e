"""Streamlet programs for the type checker. A comment `# error: TEXT` names the error that its line must have."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, assert_type

from heronry.streamlet import (
    Builder,
    Context,
    Joined,
    KeyedStreamlet,
    KeyValue,
    Matched,
    Process,
    Streamlet,
    Windowed,
    WindowedStreamlet,
    collect,
    count,
    distinct,
    files,
    kafka,
    mean,
    monoid,
    sequence,
    session,
    sliding,
    to_files,
    top_k,
    tumbling,
)


@dataclass
class Order:
    customer: str
    cents: int
    time_ms: int


def make_order(number: int) -> Order:
    return Order(f"c{number % 7}", number, number)


def longer(a: str, b: str) -> str:
    return max(a, b, key=len)


def add_counters(a: Counter[str], b: Counter[str]) -> Counter[str]:
    return a + b


class Visits(Process[str, Order, tuple[str, int]]):
    def on_record(self, context: Context[str, tuple[str, int]], record: Order) -> None:
        context.state = (context.state or 0) + 1
        context.emit((record.customer, context.state))


class Untyped:
    def on_record(self, context, record):  # type: ignore[no-untyped-def]
        context.emit(record)


def totals(context: Context[str, int], record: Order) -> None:
    context.emit(record.cents)


builder = Builder("typed", {"topology.stmgrs": 2})

# Sources.

lines = builder.source(files("/in", "text"))
assert_type(lines, Streamlet[str])
assert_type(builder.source(files("/in", "csv", schema={"a": "int"})), Streamlet[dict[str, Any]])
assert_type(builder.source(files("/in")), Streamlet[Any])
assert_type(builder.source(sequence(10)), Streamlet[int])
assert_type(builder.source([1.5, 2.5]), Streamlet[float])
assert_type(builder.source(kafka("host:9092", "orders")), Streamlet[dict[str, Any]])
orders = builder.source(sequence(10, make_order), event_time=lambda order: order.time_ms, unit="ms")
assert_type(orders, Streamlet[Order])
builder.source(sequence(10, make_order), event_time=lambda order: order.nonsense)  # error: "nonsense"
builder.source(sequence(10, make=longer))  # error: incompatible type

# Record by record.

assert_type(orders.map(lambda order: order.cents), Streamlet[int])
assert_type(lines.flat_map(str.split), Streamlet[str])
assert_type(lines.flat_map(str.split).map(len), Streamlet[int])
assert_type(orders.filter(lambda order: order.cents > 0), Streamlet[Order])
assert_type(orders.tap(print).log(), Streamlet[Order])
assert_type(orders.with_schema(Order), Streamlet[dict[str, Any]])
cheap, dear = orders.branch(lambda order: order.cents < 100)
assert_type(cheap, Streamlet[Order])
assert_type(lines.union(lines.map(len)), Streamlet[str | int])
orders.map(lambda order: order.nonsense)  # error: "Order" has no attribute "nonsense"
orders.filter(lambda order: order.nonsense)  # error: "Order" has no attribute "nonsense"
orders.tap(lambda order: repr(order.nonsense))  # error: "Order" has no attribute "nonsense"
orders.branch(lambda order: order.nonsense)  # error: "Order" has no attribute "nonsense"
orders.flat_map(lambda order: order.cents)  # error: Incompatible return value type
orders.map(longer)  # error: incompatible type
orders.map(len)  # error: incompatible type
orders.map(lambda order: order.cents).map(lambda cents: cents.nonsense)  # error: "int" has no attribute "nonsense"
orders.map("cents")  # error: incompatible type

# Lookups.

names = [("c1", "Ann")]
assert_type(orders.lookup(names, on="customer", key=0), Streamlet[Matched[Order, tuple[str, str]]])
left = orders.lookup(names, on=lambda order: order.customer, key=lambda row: row[0], how="left")
assert_type(left, Streamlet[Matched[Order, tuple[str, str] | None]])
left.map(lambda pair: pair.record.nonsense)  # error: "Order" has no attribute "nonsense"
orders.lookup(names, on=lambda order: order.nonsense)  # error: "nonsense"

# Reducers.

assert_type(lines.key_by(), KeyedStreamlet[str, str])
assert_type(lines.key_by(len), KeyedStreamlet[int, str])
assert_type(orders.key_by("customer"), KeyedStreamlet[Any, Order])
by_customer = orders.key_by(lambda order: order.customer)
assert_type(by_customer, KeyedStreamlet[str, Order])
assert_type(by_customer.count_by_key(), Streamlet[KeyValue[str, int]])
assert_type(by_customer.sum_by_key("cents"), Streamlet[KeyValue[str, Any]])
assert_type(by_customer.reduce_by_key(distinct(), "customer"), Streamlet[KeyValue[str, int]])
assert_type(by_customer.reduce_by_key(top_k(3, "cents")), Streamlet[KeyValue[str, tuple[Any, ...]]])
assert_type(lines.key_by().reduce_by_key(longer), Streamlet[KeyValue[str, str]])
assert_type(lines.key_by().reduce_by_key(max), Streamlet[KeyValue[str, Any]])
assert_type(orders.count_by_key(key="customer"), Streamlet[KeyValue[Any, int]])
letters = monoid(Counter, add_counters, finish=len, lift=Counter[str])
assert_type(lines.key_by().reduce_by_key(letters), Streamlet[KeyValue[str, int]])
by_customer.count_by_key().map(lambda pair: pair.value.nonsense)  # error: "int" has no attribute "nonsense"
orders.key_by(lambda order: order.nonsense)  # error: "nonsense"
by_customer.sum_by_key(lambda order: order.nonsense)  # error: "nonsense"
by_customer.map(len)  # error: "KeyedStreamlet[str, Order]" has no attribute "map"
by_customer.sink(collect())  # error: has no attribute "sink"
by_customer.key_by("cents")  # error: has no attribute "key_by"
by_customer.count_by_key(key="cents")  # error: incompatible type
lines.key_by().reduce_by_key("sum")  # error: No overload variant
lines.distinct()  # error: "Streamlet[str]" has no attribute "distinct"

# Windows.

windows = by_customer.window(tumbling(60))
assert_type(windows, WindowedStreamlet[str, Order])
assert_type(windows.reduce_by_key(mean(), "cents"), Streamlet[Windowed[str, Any]])
assert_type(windows.count_by_key(), Streamlet[Windowed[str, int]])
assert_type(orders.window(sliding(60, 10)).reduce_by_key(count(), key="customer"), Streamlet[Windowed[Any, int]])
assert_type(orders.window(session(30)).key_by(lambda order: order.cents), WindowedStreamlet[int, Order])
assert_type(windows.distinct(), Streamlet[Order])
assert_type(windows.count_by_key().late(), Streamlet[Any])
joined = windows.join(lines.key_by())
assert_type(joined, Streamlet[Joined[str, Order, str]])
assert_type(windows.join(lines.key_by(), "left"), Streamlet[Joined[str, Order, str | None]])
assert_type(windows.join(lines.key_by(), "right"), Streamlet[Joined[str, Order | None, str]])
assert_type(windows.join(lines.key_by(), "outer"), Streamlet[Joined[str, Order | None, str | None]])
windows.join(lines)  # error: No overload variant
windows.join(lines.key_by(), how="full")  # error: No overload variant
windows.window(tumbling(60))  # error: has no attribute "window"
joined.map(lambda pair: pair.left.nonsense)  # error: "Order" has no attribute "nonsense"
orders.window(60)  # error: incompatible type "int"; expected "Window"

# Processes.

assert_type(by_customer.process(Visits), Streamlet[tuple[str, int]])
assert_type(by_customer.process(totals), Streamlet[int])
assert_type(by_customer.process(Untyped), Streamlet[Any])
lines.key_by().process(totals)  # error: incompatible type "Callable[[Context[str, int], Order], None]"
by_customer.process(3)  # error: No overload variant

# Sinks.

assert_type(lines.sink(to_files("/out")), Streamlet[str])
lines.sink("/out")  # error: incompatible type "str"
