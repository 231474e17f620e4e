"""Wire dataclasses match their messages, and decoding inverts encoding."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.dataflow import Cause, CauseKind
from heron_runtime.model.plan import (
    ContainerPlan,
    InstancePlan,
    KeyGroupTable,
    PackingPlan,
    PhysicalPlan,
    PlanVersion,
    Resources,
    StreamManagerInfo,
)
from heron_runtime.model.topology import (
    ComponentKind,
    ComponentSpec,
    GroupingKind,
    GroupingSpec,
    InputSpec,
    StreamSchema,
    TopologyDefinition,
    TopologyState,
)
from heron_runtime.wire import control, master, message_codecs, metrics
from heron_runtime.wire.codec import Codec, UnionCodec
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.generated import heronry_topology_pb2

CODECS = {name: item for name, item in vars(message_codecs).items() if isinstance(item, Codec)}
UNIONS = {name: item for name, item in vars(message_codecs).items() if isinstance(item, UnionCodec)}

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
configs = st.dictionaries(st.text(min_size=1), plain, max_size=4)
groupings = st.builds(
    GroupingSpec,
    kind=st.sampled_from(GroupingKind),
    fields=st.lists(st.text(), max_size=3).map(tuple),
    python_class=st.text(),
    arguments=st.binary(),
)
components = st.builds(
    ComponentSpec,
    name=st.text(),
    kind=st.sampled_from(ComponentKind),
    python_class=st.text(),
    parallelism=st.integers(1, 1000),
    outputs=st.lists(st.builds(StreamSchema, st.text(), st.lists(st.text()).map(tuple), st.booleans())).map(tuple),
    inputs=st.lists(st.builds(InputSpec, st.text(), st.text(), groupings), max_size=3).map(tuple),
    config=configs,
)
definitions = st.builds(TopologyDefinition, st.text(), st.text(), st.lists(components, max_size=4).map(tuple), configs)


def a_plan() -> PhysicalPlan:
    definition = TopologyDefinition(
        "words",
        "words-1",
        (
            ComponentSpec("word", ComponentKind.SPOUT, "m:Word", 2, (StreamSchema("default", ("word",)),)),
            ComponentSpec(
                "count",
                ComponentKind.BOLT,
                "m:Count",
                1,
                (),
                (InputSpec("word", "default", GroupingSpec(GroupingKind.FIELDS, ("word",))),),
                {"topology.tick.tuple.freq.ms": 5},
            ),
        ),
    )
    instances = tuple(
        InstancePlan(t, c, i, Resources(0.5, 1, 2)) for t, c, i in [(1, "word", 0), (2, "word", 1), (3, "count", 0)]
    )
    return PhysicalPlan(
        PlanVersion(3, 7),
        2,
        definition,
        PackingPlan("words", (ContainerPlan(1, instances, Resources(2, 3, 4)),)),
        (StreamManagerInfo(1, "127.0.0.1", 4000, 99, 12),),
        (KeyGroupTable("count", (3,) * 1024),),
        TopologyState.PAUSED,
    )


@pytest.mark.parametrize("name", sorted(CODECS))
def test_fields_of_dataclass_and_message_agree(name: str) -> None:
    pair = CODECS[name]
    fields = {f.name for f in dataclasses.fields(pair._python)}
    assert fields == {f.name for f in pair._message.DESCRIPTOR.fields}


@pytest.mark.parametrize("name", sorted(UNIONS))
def test_every_member_of_a_union_is_a_field(name: str) -> None:
    union = UNIONS[name]
    assert {f.name for f in union._message.DESCRIPTOR.fields} == set(union._by_field)


@given(definitions)
def test_definitions_survive(definition: TopologyDefinition) -> None:
    assert message_codecs.TOPOLOGY.decode(message_codecs.TOPOLOGY.encode(definition)) == definition


def test_physical_plan_survives() -> None:
    assert message_codecs.PHYSICAL_PLAN.decode(message_codecs.PHYSICAL_PLAN.encode(a_plan())) == a_plan()


@pytest.mark.parametrize(
    "message",
    [
        control.InstanceHello(1, "t", 3, 4, 5),
        control.PlanUpdate(a_plan(), 9),
        control.Pause(True, (Cause(CauseKind.TASK, "count", 3, 1),)),
        control.Credit(2**40),
    ],
)
def test_instance_control_survives(message: control.InstanceControl) -> None:
    assert message_codecs.INSTANCE_CONTROL.decode(message_codecs.INSTANCE_CONTROL.encode(message)) == message


def test_maps_and_sketches_survive() -> None:
    report = metrics.ProcessMetrics(
        "count", "container_1_count_3", 1, 3, 77, 1.5, {"__ack-count/default": 4.0}, {"g": -1.0}, {"l": b"\x00\xff"}
    )
    request = master.PublishMetrics(1, (report,))
    assert message_codecs.PUBLISH_METRICS.decode(message_codecs.PUBLISH_METRICS.encode(request)) == request


@pytest.mark.parametrize("garbage", [b"\xff\xff\xff\xff", b"\x0a\xff"])
def test_garbage_is_a_malformed_message(garbage: bytes) -> None:
    for item in (message_codecs.TOPOLOGY, message_codecs.INSTANCE_CONTROL, message_codecs.TO_MASTER):
        with pytest.raises(MalformedMessage):
            item.decode(garbage)


def test_garbled_byte_is_malformed_or_another_definition() -> None:
    text = "a text that may be no UTF-8 any more"
    data = bytearray(message_codecs.TOPOLOGY.encode(TopologyDefinition("t", "t-1", (), {text: [text]})))
    malformed = 0
    for place in range(len(data)):
        for wrong in (0xCF, 0xFF, data[place] ^ 1):
            garbled = data[:place] + bytes([wrong]) + data[place + 1 :]
            try:
                message_codecs.TOPOLOGY.decode(bytes(garbled))
            except MalformedMessage:
                malformed += 1
    assert malformed > len(text)


def test_envelope_without_content_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="without content"):
        message_codecs.PEER_CONTROL.decode(b"")


def test_foreign_message_in_a_union_is_rejected() -> None:
    with pytest.raises(TypeError, match="does not belong"):
        message_codecs.PEER_CONTROL.encode(control.Credit(1))  # type: ignore[arg-type]


def test_value_outside_its_enum_is_malformed() -> None:
    message = heronry_topology_pb2.PhysicalPlan.FromString(message_codecs.PHYSICAL_PLAN.encode(a_plan()))
    message.state = "asleep"
    with pytest.raises(MalformedMessage, match="asleep"):
        message_codecs.PHYSICAL_PLAN.decode(message.SerializeToString())
