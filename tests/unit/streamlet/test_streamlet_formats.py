"""Stable names in stored definitions, checkpoints and fingerprints."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from heronry.streamlet import (
    Builder,
    Joined,
    KeyValue,
    Matched,
    Windowed,
    archive,
    collect,
    files,
    redis_stream,
    sequence,
    session,
    sliding,
    to_files,
    to_table,
    top_k,
    tumbling,
    view,
)
from heronry.streamlet.online.locate import fingerprint

DESCRIPTION = """\
a: source
n: source
r: source
l: lookup <- a
f: flat_map <- l
s1: sink <- f
b: branch <- a
j-left: map <- b
j-right: map <- r
j-both: union <- j-left, j-right
j: reduce <- j-both
j-pairs: flat_map <- j
s2: sink <- j-pairs
u: union <- b[1], n
top: reduce <- u
s3: sink <- top
c: reduce <- n
s4: sink <- c
c-late: log <- c[1]
p: reduce <- n
p-late: flat_map <- p[1]
q: filter <- p-late
t: tap <- q
d: reduce <- n
d-record: map <- d
s5: sink: postgres t at d <- d-record
sum: reduce <- n
s6: sink <- sum
max: reduce <- n
s7: sink <- max"""

CLASSES = {
    "a": "heronry.streamlet.online.file_spout:FileSpout",
    "n": "heronry.streamlet.online.sequence_spout:SequenceSpout",
    "r": "heronry.streamlet.online.server_spout:ServerSpout",
    "l": "heronry.streamlet.online.chain_bolt:ChainBolt",
    "j-right": "heronry.streamlet.online.chain_bolt:ChainBolt",
    "j-both": "heronry.streamlet.online.chain_bolt:ChainBolt",
    "j": "heronry.streamlet.online.reduce_bolt:ReduceBolt",
    "u": "heronry.streamlet.online.chain_bolt:ChainBolt",
    "top": "heronry.streamlet.online.reduce_bolt:ReduceBolt",
    "c-combine": "heronry.streamlet.online.chain_bolt:ChainBolt",
    "c": "heronry.streamlet.online.reduce_bolt:ReduceBolt",
    "p": "heronry.streamlet.online.reduce_bolt:ReduceBolt",
    "d": "heronry.streamlet.online.reduce_bolt:ReduceBolt",
    "sum": "heronry.streamlet.online.reduce_bolt:ReduceBolt",
    "max": "heronry.streamlet.online.reduce_bolt:ReduceBolt",
}

PICKLES: dict[bytes, Any] = {
    b"\x80\x02cheronry.streamlet.program\nKeyValue\nK\x01K\x02\x86\x81.": KeyValue(1, 2),
    b"\x80\x02cheronry.streamlet.program\nWindowed\n(K\x01K\x02K\x03K\x04t\x81.": Windowed(1, 2, 3, 4),
    b"\x80\x02cheronry.streamlet.program\nMatched\nK\x01K\x02\x86\x81.": Matched(1, 2),
    b"\x80\x02cheronry.streamlet.joins\nJoined\n(K\x01K\x02K\x03K\x04K\x05t\x81.": Joined(1, 2, 3, 4, 5),
}


def same(record: Any) -> Any:
    return record


def handle(context: Any, record: Any) -> None:
    context.emit(record)


def every_step() -> Builder:
    builder = Builder("golden")
    a = builder.source(files("/in", "csv", schema={"id": "int", "word": "str"}), event_time="id", name="a")
    n = builder.source(sequence(10, rate=5.0), event_time=same, name="n")
    r = builder.source(redis_stream("redis://h", "s", ["id"]), event_time="id", name="r")
    matched = a.lookup([{"id": 1}], on="id", name="l")
    matched.flat_map(same, name="f").sink(archive("/archive", event_time="id"), name="s1")
    left, rest = a.branch(same, name="b")
    joined = left.key_by("id").window(tumbling(60)).join(r.key_by("id"), name="j")
    joined.sink(to_files("/joined"), name="s2")
    windows = rest.union(n, name="u").key_by().window(sliding(60, 10), allowed_lateness=5)
    windows.reduce_by_key(top_k(3, by="x"), name="top").sink(view("v", "/view"), name="s3")
    counts = n.window(session(30)).count_by_key(key=same, name="c")
    counts.sink(to_files("/counted", "csv", fields=["key"]), name="s4")
    counts.late().log(name="c-late")
    n.key_by(same).process(handle, name="p").late().filter(same, name="q").tap(same, name="t")
    n.key_by(0).window(tumbling(1)).distinct(name="d").sink(to_table("d", "t", ["id"]), name="s5")
    n.sum_by_key(0, key=0, name="sum", parallelism=3).sink(collect(), name="s6")
    n.reduce_by_key(max, key=0, name="max", updates=False).sink(collect(), name="s7")
    return builder


def test_fingerprint_of_every_step_is_stable() -> None:
    program = every_step().build()
    assert program.describe() == DESCRIPTION
    assert fingerprint(program) == "ccd1721199372542"


def test_stored_definitions_name_the_same_classes() -> None:
    components = every_step().definition("golden", "module:variable").components
    assert {component.name: component.python_class for component in components} == CLASSES


@pytest.mark.parametrize("stored", PICKLES, ids=lambda stored: stored.split(b"\n")[1].decode())
def test_pickled_results_are_read_and_written_with_the_same_names(stored: bytes) -> None:
    value = PICKLES[stored]
    restored = pickle.loads(stored)
    assert restored == value
    assert type(restored) is type(value)
    module, name = stored[3:].split(b"\n")[:2]
    assert module in pickle.dumps(value)
    assert name in pickle.dumps(value)
