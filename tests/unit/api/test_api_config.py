"""Configuration: constants for all keys, validated values, and errors that name the remedy."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.settings import ALL_SETTINGS, GiB, Keys, MiB
from heronry import Config
from heronry.api.config import ConfigSettings, normalize_config, parse_property
from heronry.api.config_values import BadValue, check_value, parse_bytes, user_value
from heronry.api.errors import ConfigError, TopologyError
from tests.support.distributions import write_distribution


def of_topology(values: Any) -> dict[str, Any]:
    return normalize_config(values, where="topology 'T'", component=False, operator=False)


def test_keyword_arguments_are_the_topology_keys() -> None:
    """Names and types match the table, so that editors complete and check them."""
    kinds = {"str": str, "int": int, "float": float, "bool": bool, "Mapping": dict, "Literal": str}
    declared = {
        name.replace("_", "."): str(kind.__forward_arg__) for name, kind in ConfigSettings.__annotations__.items()
    }
    known = {key for key in ALL_SETTINGS if key.startswith("topology.")} - {"topology.name", "topology.arguments"}
    assert set(declared) == known
    for key, kind in declared.items():
        row = ALL_SETTINGS[key]
        assert kinds[kind.split("[")[0].split(" |")[0]] is row.type, key
        assert (kind == "int | str") == (row.unit == "bytes"), key
        assert [word for word in row.choices if repr(word) not in kind] == []


def test_keyword_arguments_are_validated() -> None:
    assert Config({"topology.debug": True}, topology_stmgrs=2) == {"topology.debug": True, "topology.stmgrs": 2}
    with pytest.raises(ConfigError, match=r"topology\.stmgrs"):
        Config(topology_stmgrs=0)
    with pytest.raises(ConfigError, match=r"the nearest is 'topology\.stmgrs'"):
        Config(topology_stmgr=2)  # type: ignore[call-arg]


def refusal(values: Any, component: bool = False) -> str:
    with pytest.raises(ConfigError) as caught:
        normalize_config(values, where="here", component=component, operator=False)
    assert isinstance(caught.value, TopologyError)
    assert str(caught.value).startswith("here")
    return str(caught.value)


def test_every_key_has_a_constant() -> None:
    constants = {getattr(Config, name) for name in vars(Keys) if name.startswith(("TOPOLOGY_", "HERON_"))}
    assert constants == set(ALL_SETTINGS)
    for value in constants:
        assert type(value) is str
        assert getattr(Config, value.upper().replace(".", "_")) == value


@pytest.mark.parametrize("name", sorted(ALL_SETTINGS))
def test_every_default_is_valid(name: str) -> None:
    row = ALL_SETTINGS[name]
    if row.default is not None:
        assert check_value(row, row.default) == row.default


def test_values_are_normalized() -> None:
    assert of_topology(
        {
            "topology.container.ram": "2GB",
            "topology.backpressure.high.watermark.bytes": "64MiB",
            "topology.component.rammap": {"words": "512MB", "count": 1e9},
            "topology.component.cpumap": {"words": 1},
            "topology.max.spout.pending": 1e4,
            "topology.tick.tuple.freq.secs": 2,
            "topology.debug": None,
            "user.pair": (1, ("a", b"b")),
        }
    ) == {
        "topology.container.ram": 2 * GiB,
        "topology.backpressure.high.watermark.bytes": 64 * MiB,
        "topology.component.rammap": {"words": 512 * MiB, "count": 10**9},
        "topology.component.cpumap": {"words": 1.0},
        "topology.max.spout.pending": 10_000,
        "topology.tick.tuple.freq.secs": 2.0,
        "user.pair": [1, ["a", b"b"]],
    }


@given(st.sampled_from(sorted(ALL_SETTINGS)), st.data())
def test_misspelt_key_suggests_the_nearest_key(name: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(len("topology."), len(name) - 1))
    slip = name[:place] + name[place + 1 :]
    if slip in ALL_SETTINGS or slip == "topology.acking" or name == "topology.name":  # known keys
        return
    meant = difflib.get_close_matches(slip, ALL_SETTINGS, n=1)[0]
    assert f"unknown config key {slip!r}; the nearest is {meant!r}" in refusal({slip: 1})


def test_plugin_names_are_valid_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offers = {"heronry.serializers": {"lines": "nowhere:Lines"}, "heronry.packing": {"tight": "nowhere:tight"}}
    monkeypatch.syspath_prepend(write_distribution(tmp_path, "mine", offers))
    plain = of_topology({"topology.serializer": "lines", "topology.packing": "tight"})
    assert plain == {"topology.serializer": "nowhere:Lines", "topology.packing": "tight"}
    assert of_topology(plain) == plain
    assert of_topology({"topology.serializer": "arrow"}) == {"topology.serializer": "arrow"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"topology.max.spout.pending": "many"}, "write a whole number of tuples, for example 20000"),
        ({"topology.max.spout.pending": True}, "True (bool) is not a whole number"),
        ({"topology.max.spout.pending": 1.5}, "1.5 (float) is not a whole number"),
        ({"topology.max.spout.pending": "512MB"}, "'512MB' (str) is not a whole number of tuples"),
        ({"topology.max.spout.pending": 0}, "0 tuples is too small; the least is 1 tuples"),
        ({"topology.max.spout.pending": 10**9}, "the most is 10 000 000 tuples"),
        ({"topology.message.timeout.secs": "30s"}, "write a whole number of seconds, for example 30"),
        ({"topology.tick.tuple.freq.secs": float("nan")}, "nan (float) is not a number of seconds"),
        ({"topology.container.ram": "2XB"}, "write a number, or '512KB', '64MB', '2GB'"),
        ({"topology.container.ram": "1MB"}, "is too small; the least is 16 777 216 bytes"),
        ({"topology.container.ram": [1]}, "(or a size such as '512MB')"),
        ({"topology.debug": "yes"}, "'yes' is not a bool; write True or False"),
        ({"topology.reliability.mode": "atleast_once"}, "did you mean 'ATLEAST_ONCE'?"),
        ({"topology.stateful.checkpoint.storage": "s3://bucket"}, "write file:///path"),
        ({"topology.stateful.start.clean": True}, "starts without state"),
        ({"topology.reliability.mode": 1}, "should be one of 'ATMOST_ONCE'"),
        ({"topology.serializer": "pikle"}, "did you mean 'pickle'? (A plug-in must be installed by the topology"),
        ({"topology.serializer": "pikle"}, "; a class of your own is written 'module:Class'"),
        ({"topology.packing": "round_robbin"}, "did you mean 'round_robin'? (A plug-in must be installed where"),
        ({"topology.environment": {"A": 1}}, "variable 'A': 1 is not a string; write '1'"),
        ({"topology.environment": {"A=B": "1"}}, "invalid name 'A=B' of an environment variable"),
        ({"topology.environment": "A=1"}, "write NAME:VALUE"),
        ({"topology.environment": 3}, "is not a dict; write {'LANG': 'C.UTF-8'}"),
        ({"topology.component.rammap": {"a": "x"}}, "component 'a': 'x' is not a size in bytes"),
        ({"topology.component.cpumap": {"a": -1}}, "component 'a': -1 is not a number of cores"),
        ({"topology.component.cpumap": {3: 1}}, "the key 3 is not a name"),
        ({"topology.tick.tuple.freq.secs": 1, "topology.tick.tuple.freq.ms": 3}, "keep one of them"),
        ({"topology.backpressure.high.watermark.bytes": "1MB"}, "is 8388608 (its default); it must be less than"),
        ({"topology.backpressure.low.watermark.bytes": 32 * MiB}, "which is 16777216 (its default)"),
        ({"topology.name": "x"}, "write name = '…' on the topology, or use --name"),
        ({"topology.acking": True}, "set topology.reliability.mode to ATLEAST_ONCE"),
        ({"topology.component.jvmopts": ""}, "applies to the JVM"),
        ({"topology.workers": 2}, "is topology.stmgrs here"),
        ({"topology.acker.executors": 1}, "see topology.reliability.mode"),
        ({"topology.tasks": 4}, "par= of spec() sets the number of tasks"),
        ({"topology.metrics.consumer.register": "c"}, "is heron.metrics.sinks here"),
        ({"topology.eventlogger.executors": 1}, "use a task hook"),
        ({"topology.stats.sample.rate": 0.05}, "counters count every tuple"),
        ({"heron.stop.grace.secs": 1}, "--config-property heron.stop.grace.secs=VALUE"),
        ({"nonsense": 1}, "keys of your own begin with 'user.'"),
        ({"TOPOLOGY_DEBUG": True}, "the nearest is 'topology.debug'"),
        ({3: 1}, "config key 3 is not a string"),
        ({"user.": 1}, "unknown config key 'user.'"),
        ({"user.x": object()}, "an object of type object is not plain data"),
        ({"user.x": {1.5: 2}}, "the key 1.5 of a dict"),
        ({"user.x": 2**70}, "does not fit into 64 bits"),
        ([("topology.debug", True)], "config is a list"),
    ],
)
def test_invalid_value_error_names_the_remedy(values: Any, words: str) -> None:
    assert words in refusal(values)


def test_topology_key_is_rejected_in_a_component() -> None:
    assert "holds for the whole topology" in refusal({"topology.stmgrs": 2}, component=True)
    assert "is the operator's" in refusal({"heron.stop.grace.secs": 2}, component=True)


def test_all_problems_are_reported_together() -> None:
    text = refusal({"topology.debug": 1, "topology.stmgrs": 0, "x": 1})
    assert text.splitlines()[0] == "here is not valid, 3 problems:"


def test_cyclic_data_is_rejected() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "nested deeper than 32" in refusal({"user.x": endless})


plain = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text(), st.binary()
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=8,
)


@given(plain)
def test_plain_data_is_unchanged_and_serializable(value: Any) -> None:
    if value is None:
        return
    out = of_topology({"user.x": value})
    assert out == {"user.x": value}
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(out)) == out


@given(st.integers(0, 2**50))
def test_sizes_are_binary(value: int) -> None:
    assert parse_bytes(str(value)) == value
    assert parse_bytes(f"{value} kb") == parse_bytes(f"{value}KiB") == value * 1024


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("topology.container.ram=2GB", "topology.container.ram", 2 * GiB),
        ("topology.container.ram=2147483648", "topology.container.ram", 2 * GiB),
        ("topology.debug=yes", "topology.debug", True),
        ("topology.debug=OFF", "topology.debug", False),
        ("topology.stmgrs = 3", "topology.stmgrs", 3),
        ("topology.tick.tuple.freq.secs=0.5", "topology.tick.tuple.freq.secs", 0.5),
        ("topology.serializer=msgpack", "topology.serializer", "msgpack"),
        ("topology.component.rammap=a:1GB, b:2MB", "topology.component.rammap", {"a": GiB, "b": 2 * MiB}),
        ('topology.component.cpumap={"a": 0.5}', "topology.component.cpumap", {"a": 0.5}),
        ("topology.component.cpumap=a:0.5", "topology.component.cpumap", {"a": 0.5}),
        ("heron.metrics.sinks=jsonlines,tmanager", "heron.metrics.sinks", ["jsonlines", "tmanager"]),
        ('heron.metrics.sinks=["jsonlines"]', "heron.metrics.sinks", ["jsonlines"]),
        ("heron.stop.grace.secs=2", "heron.stop.grace.secs", 2.0),
        ("user.path=/a=b", "user.path", "/a=b"),
    ],
)
def test_command_line_property_is_parsed(text: str, key: str, value: Any) -> None:
    assert parse_property(text) == (key, value)
    assert normalize_config({key: value}, where="x", component=False) == {key: value}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("foo", "write KEY=VALUE"),
        ("=x", "write KEY=VALUE"),
        ("topology.debg=true", "the nearest is 'topology.debug'"),
        ("topology.debug=maybe", "neither true nor false"),
        ("topology.stmgrs=2.5", "is not a whole number of containers"),
        ("topology.stmgrs=x", "'x' (str) is not a whole number"),
        ("topology.component.cpumap={", "is not JSON"),
    ],
)
def test_invalid_property_is_rejected(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_property(text)
    assert str(caught.value).startswith(f"property {text!r}: ")
    assert words in str(caught.value)


def test_setters_validate_and_return_the_config() -> None:
    config = (
        Config()
        .set_num_stmgrs(3)
        .set_topology_reliability_mode(Config.ATLEAST_ONCE)
        .set_max_spout_pending(10)
        .set_message_timeout_secs(5)
        .set_tick_tuple_frequency(0.5)
        .set_debug(True)
        .set_serializer("pickle")
        .set_component_ram("words", "1GB")
        .set_component_ram("count", 16 * MiB)
        .set_component_cpu("words", 2)
        .set_component_disk("words", "1GB")
        .set_container_cpu(4)
        .set_container_ram("4GB")
        .set_container_disk("4GB")
        .set_environment("LANG", "C")
        .set_user("n", 1)
    )
    assert of_topology(config) == config
    assert config["topology.component.rammap"] == {"words": GiB, "count": 16 * MiB}
    assert config["user.n"] == 1
    with pytest.raises(ConfigError, match="0 containers is too small"):
        config.set_num_stmgrs(0)


@pytest.mark.parametrize(
    "text", ["1" + " " * 1_000_000 + "!", "1" * 1_000_000 + "!", " " * 1_000_000 + "!", "1B" * 500_000]
)
def test_long_invalid_size_is_rejected_quickly_and_abbreviated(text: str) -> None:
    with pytest.raises(BadValue) as refused:
        parse_bytes(text)
    assert len(str(refused.value)) < 200


def test_blanks_around_a_size_are_ignored() -> None:
    assert parse_bytes(" " * 1000 + "1.5 kb" + " " * 1000) == 1536


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("false", False), ("True", True), ("5", 5), ("-7", -7), ("0.5", 0.5), ("1e3", 1000.0), ("null", None),
        ("no", "no"), ("", ""), ("word", "word"), ("5 %", "5 %"), ("'5'", "5"), ('"5"', "5"), ("'it\'\'s'", "it's"),
        ("[1, 2]", [1, 2]), ('{"a": 1}', {"a": 1}), ("[info]", "[info]"), ("2026-11-21", "2026-11-21"),
        ("1:30", "1:30"), ("1_000", "1_000"), (".inf", float("inf")),
    ],
)  # fmt: skip
def test_user_value_is_a_yaml_scalar(text: str, value: Any) -> None:
    got = user_value(text)
    assert (got, type(got)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "like", "value"),
    [
        ("false", True, False), ("no", True, False), ("1", False, True), ("5", "text", "5"), ("false", "text", "false"),
        ("5", 1.5, 5.0), ("5", 1, 5), ("[3]", [1], [3]), ("{}", {"a": 1}, {}),
    ],
)  # fmt: skip
def test_user_value_takes_the_type_of_the_replaced_value(text: str, like: Any, value: Any) -> None:
    got = user_value(text, like)
    assert (got, type(got)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "like"), [("maybe", True), ("1.5", 1), ("x", 1.5), ("true", 1), ("1", [1]), ("[", {})]
)
def test_user_value_of_another_type_is_rejected(text: str, like: Any) -> None:
    with pytest.raises(BadValue, match="the value before is"):
        user_value(text, like)


@given(st.text())
def test_any_text_is_a_user_value(text: str) -> None:
    assert user_value(text, "text") == text
    normalize_config({"user.x": user_value(text)}, where="x", component=False)
