"""Conversion of records to a schema: accepted and rejected values, equal on every engine."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import re
import tempfile
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from data_pipeline.core.combine import ASIDE
from data_pipeline.core.decode import Decoding
from data_pipeline.core.planner import plan
from data_pipeline.core.render import to_pickle
from data_pipeline.core.runner import Runner
from heronry import TopologyError
from heronry.streamlet import Builder, collect, files, sequence, to_files
from heronry.streamlet.partitions import cell
from heronry.streamlet.reference import run
from heronry.streamlet.results import read
from heronry.streamlet.schema import KINDS, FieldType, RecordConverter, RecordSchema, SchemaError, schema_of
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.online_engine import definition_of, importable, letters_in, run_online

UTC = dt.UTC


class Colour(StrEnum):
    RED = "red"


class Half(float):
    """Float subclass."""


VALUES: dict[str, Any] = {
    "str": st.text(st.characters(codec="utf-8"), max_size=4),
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(),
    "bool": st.booleans(),
    "bytes": st.binary(max_size=4),
    "datetime": st.datetimes(timezones=st.just(UTC)),
    "date": st.dates(),
    "Decimal": st.decimals(-(10**9), 10**9, places=3),
}
NUMBERS = st.one_of(
    st.integers(), st.floats(), st.decimals(), st.booleans(), st.builds(Half, st.floats()),
    st.sampled_from([2**53 + 1, 2**63, -(2**63) - 1, 10**400, Decimal("1E+40"), Decimal("1E-40"), Decimal("sNaN")]),
)  # fmt: skip
TYPES = {kind: own for own, kind in KINDS.items()}
WORDS = st.one_of(
    st.integers().map(str), st.floats().map(repr), st.decimals().map(str), st.text(max_size=3),
    st.from_regex(r"[+-]?[0-9]{1,3}\.[0-9]{0,3}([eE][+-]?[0-9]{1,4})?", fullmatch=True),
    st.sampled_from(
        ["1_000", " 1", "١", "+7", "007", "1.", ".5", "1e999", "1e-999", "NaN", "nan", "inf", "0x1", "TRUE", "0"]
    ),
)  # fmt: skip
TIMES = st.one_of(
    st.datetimes(timezones=st.none()), st.datetimes(timezones=st.timezones()), st.dates(),
    st.datetimes(timezones=st.sampled_from([UTC, dt.timezone(dt.timedelta(hours=-3, minutes=-30))])).map(str),
    st.datetimes().map(dt.datetime.isoformat), st.dates().map(str),
    st.sampled_from(["2026-01-01T00:00:00.1234567", "2026-02-30", "2026-01-01T00:00Z", "20260101T0000", "0000-01-01"]),
)  # fmt: skip
ANYTHING = st.one_of(NUMBERS, WORDS, TIMES, st.none(), st.binary(max_size=3), st.just(Colour.RED), st.just([1]))
TRY = settings(
    database=None, deadline=None, report_multiple_bugs=False,
    phases=[Phase.explicit, Phase.generate],
)  # fmt: skip


def of(kind: str, **more: Any) -> RecordConverter:
    return RecordConverter(RecordSchema("one", (FieldType("v", kind, **more),)))


@TRY
@given(st.sampled_from(sorted(VALUES)).flatmap(lambda kind: st.tuples(st.just(kind), VALUES[kind])))
def test_valid_value_is_unchanged(pair: tuple[str, Any]) -> None:
    kind, value = pair
    for made in (of(kind)({"v": value}), of(kind, optional=True)({"a": 1, "v": value})):
        assert list(made) == ["v"]
        assert type(made["v"]) is type(value)
        assert made["v"] == value or value != value
        assert of(kind)(made) == made or value != value


@TRY
@given(st.sampled_from(sorted(VALUES)).flatmap(lambda kind: st.tuples(st.just(kind), VALUES[kind])))
def test_value_written_to_a_file_is_read_back(pair: tuple[str, Any]) -> None:
    """The CSV and JSON texts of a sink convert back to the value."""
    kind, value = pair
    words = []
    if kind != "bytes" and (kind != "str" or not {"\n", "\r"} & set(value)):
        words.append(cell(value))
    if kind == "bytes":
        words.append(base64.b64encode(value).decode())
    if kind != "Decimal" and not (kind == "float" and not math.isfinite(value)):
        words.append(msgspec.json.decode(msgspec.json.encode(value)))
    for word in words:
        found = of(kind)({"v": word})["v"]
        assert found == value or value != value, word


@TRY
@example(("datetime", "2026-01-02T03:04:05.1234567"))
@example(("datetime", dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)))
@example(("Decimal", "1." + "3" * 80))
@given(
    st.one_of(
        st.tuples(st.sampled_from(sorted(VALUES)), ANYTHING), st.tuples(st.sampled_from(["datetime", "date"]), TIMES),
        st.tuples(st.sampled_from(["int", "float", "Decimal"]), st.one_of(NUMBERS, WORDS)),
    )
)  # fmt: skip
def test_conversion_is_lossless_or_rejected(pair: tuple[str, Any]) -> None:
    """A rejection names the field; otherwise only the type may differ."""
    kind, value = pair
    for more in ({}, {"bits": 8}, {"digits": 10, "scale": 2}):
        try:
            found = of(kind, **more)({"v": value})["v"]
        except SchemaError as error:
            if "field 'v' is " not in str(error):
                raise
            continue
        assert type(found) is TYPES[kind]
        assert says(found, value), (found, value)
        if kind == "int":
            assert -(1 << more.get("bits", 64) - 1) <= found < 1 << more.get("bits", 64) - 1
        if kind == "Decimal" and more.get("scale"):
            assert found.as_tuple().exponent == -2
            assert len(found.as_tuple().digits) <= 10


def says(found: Any, value: Any) -> bool:
    """Return whether both values mean the same in different types."""
    if isinstance(found, bool):
        return found is value or str(value).lower() in (("true", "1") if found else ("false", "0"))
    if isinstance(found, float) and isinstance(value, str):
        if not math.isfinite(found):
            return repr(found) == value
        exact = Fraction(value)
        return found == float(exact) and (found != 0 or exact == 0)
    if isinstance(found, int | float | Decimal):
        if isinstance(value, bool):
            return False
        if isinstance(value, float) and not math.isfinite(value):
            return repr(float(value)) == repr(found)
        return Fraction(found) == Fraction(value)
    if isinstance(found, dt.datetime):
        given = dt.datetime.fromisoformat(value) if isinstance(value, str) else value
        # Computed manually: a time that a zone repeats or skips equals no time of another zone (PEP 495).
        moment = given.replace(tzinfo=None, fold=0) - (given.utcoffset() or dt.timedelta())
        digits = re.search(r"\.(\d+)", value) if isinstance(value, str) else None
        return found.tzinfo is UTC and found.replace(tzinfo=None) == moment and (digits is None or len(digits[1]) <= 6)
    if isinstance(found, dt.date):
        return str(found) == str(value)
    if isinstance(found, bytes) and isinstance(value, str):
        return base64.b64encode(found).decode() == value
    return type(found) in (str, bytes) and found == value


@TRY
@given(st.sampled_from(sorted(VALUES)), st.booleans(), st.booleans())
def test_absent_value_is_default_none_or_rejected(kind: str, optional: bool, has_default: bool) -> None:
    default = (of(kind)({"v": {"Decimal": 1, "int": 1, "float": 1, "bool": "1"}.get(kind, EXAMPLES.get(kind))})["v"],)
    one = of(kind, optional=optional, default=default if has_default else ())
    for record, expected in (({}, default[0] if has_default else None), ({"v": None}, None)):
        if optional or (has_default and not record):
            assert one(record) == {"v": expected}
        else:
            assert ("is missing" if not record else "is None, and not optional") in refusal(one, record)
    if kind not in ("str", "bytes"):
        empty = {"v": ""}
        if optional:
            assert one(empty) == {"v": None}
        else:
            assert "field 'v' is ''" in refusal(one, empty)


def refusal(one: RecordConverter, record: Any) -> str:
    try:
        return f"made {one(record)}"
    except SchemaError as error:
        return str(error)


EXAMPLES = {"str": "", "bytes": b"", "datetime": "2026-01-01T00:00", "date": "2026-01-01"}


@dataclass
class Order:
    """Schema of the programs in these tests."""

    id: int
    price: Decimal | None
    at: dt.datetime
    paid: bool | None = None
    who: str = "nobody"


DIRTY = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.one_of(st.integers(0, 3), st.sampled_from(["2", "1.5", 1.5, 2**63, None, True])),
            "price": st.sampled_from(["1.50", 2, 2.5, None, "", "1e99"]),
            "at": st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01 00:00", 7]),
        },
        optional={"paid": st.sampled_from(["true", "yes", None]), "who": st.sampled_from(["a", None]), "x": st.none()},
    ),
    max_size=12,
)


def told(letters: list[dict[str, Any]]) -> list[str]:
    keys = ("step", "failed_on", "error")
    return sorted(json.dumps([letter[key] for key in keys], sort_keys=True) for letter in letters)


def orders(records: list[Any], **config: Any) -> Builder:
    builder = Builder("orders", config)
    typed = builder.source(sequence(len(records), tuple(records).__getitem__)).with_schema(Order, name="orders")
    typed.count_by_key("id", updates=False, name="counts").sink(collect(), name="counted")
    typed.sink(collect(), name="all")
    return builder


@TRY
@given(DIRTY)
def test_batch_letters_equal_the_reference(records: list[Any]) -> None:
    program = orders(records).build()
    letters: list[dict[str, Any]] = []
    results = run(program, failed=letters)
    (scan,) = plan(program).scans
    assert scan.unit is not None
    runner = Runner(scan.unit, {output.tag: to_pickle for output in scan.unit.outputs})
    found, times, places, unread = Decoding(scan.step, scan.source, None, False).singly(
        {"id": list(range(len(records)))}
    )
    rows = list(runner.sifted(found, times, places))
    aside = [json.loads(payload) for part in rows if part.tag == ASIDE for payload in part.payloads]
    assert unread == []
    assert told(aside) == told(letters)
    (everything,) = [output.tag for output in scan.unit.outputs if output.step == "all"]
    assert sum(len(part.payloads) for part in rows if part.tag == everything) == len(results["all"])
    assert len(letters) + len(results["all"]) == len(records)


@settings(max_examples=5, phases=[Phase.explicit, Phase.generate])  # each example is a whole run
@given(DIRTY, st.integers(0, 100))
def test_online_letters_equal_the_reference(records: list[Any], seed: int) -> None:
    letters: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        builder = orders(records, **{"user.streamlet.folder": f"{folder}/own"})
        expected = run(builder.build(), failed=letters)
        run_online(builder, Path(folder), seed)
        assert told(letters_in(folder)) == told(letters)
        assert difference(read(f"{folder}/own/collect/counted"), expected["counted"]) == ""
        assert len(read(f"{folder}/own/collect/all")) == len(expected["all"])


# Messages, and rejections before a run.


class Pair(NamedTuple):
    n: Any
    m: Any = None


def test_schema_error_names_record_fields_and_reasons() -> None:
    schema = RecordSchema("Order", (FieldType("n", "int"), FieldType("price", "float", optional=True)))
    with pytest.raises(SchemaError) as refused:
        RecordConverter(schema)({"N": 1, "price": 2**53 + 1})
    assert str(refused.value) == (
        "the record does not fit Order: field 'n' is missing; did you mean 'N'?; field 'price' is 9007199254740993, an "
        "int that a float cannot represent exactly"
    )
    assert RecordConverter(schema)(Pair("7")) == {"n": 7, "price": None}
    for record in (7, "text", [1], None):
        with pytest.raises(SchemaError, match="has no named fields for Order"):
            RecordConverter(schema)(record)


@dataclass
class Refused:
    a: list[int]
    b: int | str
    c: Colour
    d: dict[str, int] | None = None
    e: int = field(default_factory=int)


@dataclass
class Wrong:
    n: int = "1"  # type: ignore[assignment]  # that is what it is about


@dataclass
class Nothing:
    pass


def test_unsupported_schema_type_is_rejected_at_build() -> None:
    stream = Builder("p").source([{}])
    with pytest.raises(TopologyError) as refused:
        stream.with_schema(Refused, name="typed")
    assert [problem.partition(";")[0] for problem in refused.value.problems] == [
        "step 'typed': schema Refused: field 'a' has the type list[int]",
        "step 'typed': schema Refused: field 'b' has the type int | str",
        "step 'typed': schema Refused: field 'c' has the type Colour",
        "step 'typed': schema Refused: field 'd' has the type dict[str, int] | None",
        "step 'typed': schema Refused: field 'e' has a default_factory",
    ]
    for given_schema, message in (
        (Wrong, "the default of 'n' is '1', which would become 1"),
        (Nothing, "it has no fields"),
        (Order(1, None, dt.datetime.now(UTC)), "is not a schema; write a dataclass"),
        ({"n": "int"}, "is not a schema; write a dataclass"),
    ):
        with pytest.raises(TopologyError, match=message):
            stream.with_schema(given_schema)


def test_description_shows_schema_types(tmp_path: Path) -> None:
    builder = orders([])
    text = "orders: schema Order (id int, price Decimal?, at datetime, paid bool? = None, who str = 'nobody')"
    assert text in builder.build().describe()
    with importable(builder):
        (component,) = [spec for spec in definition_of(builder).components if spec.name == "orders"]
    assert f"orders ({text.removeprefix('orders: ')})" in component.config["user.streamlet.steps"]


def test_schema_is_known_while_records_pass_unchanged() -> None:
    builder = Builder("p")
    typed = builder.source(files("/in", "json")).with_schema(Order, name="typed")
    odd, even = typed.filter(bool).branch(bool, name="parts")
    odd.union(even.tap(print), name="both").sink(to_files("/out"), name="out")
    odd.union(even.map(dict, name="dict"), name="mixed").sink(to_files("/other"), name="other")
    program = builder.build()
    assert program.schema_at(program.by_name["out"].inputs[0]) == schema_of(Order, "typed")
    assert program.schema_at(program.by_name["other"].inputs[0]) is None


def test_long_invalid_number_is_rejected_quickly() -> None:
    with pytest.raises(SchemaError):
        of("float")({"v": "1" * 1_000_000 + "x"})
