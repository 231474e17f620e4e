"""Topologies as class bodies and by builder: resulting definitions and error messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import heronry
from heron_runtime.model.topology import ComponentKind, GroupingKind, StreamSchema
from heron_runtime.wire.message_codecs import TOPOLOGY
from heronry import Config, Grouping, Spout, Stream, Topology, TopologyBuilder, TopologyError
from heronry.api.assemble import TopologyDraft, check_draft
from heronry.api.spec import ComponentDeclaration
from tests.support.distributions import write_distribution
from tests.unit.api.dsl_parts import Batch, Count, EvenOdd, Idle, Lazy, Ticking, Words


class WordCount(Topology):
    config = {"topology.reliability.mode": "ATLEAST_ONCE", "user.path": "/tmp/x"}
    words = Words.spec(par=2)
    count = Count.spec(par=3, inputs={words: Grouping.fields("word")}, config={"user.n": 1})
    audit = Batch.spec(inputs={words["errors"]: Grouping.GLOBAL, count: Grouping.ALL})


def problems(config: dict[str, Any] | None = None, **components: ComponentDeclaration) -> list[str]:
    """Return the problems of a topology with these components."""
    with pytest.raises(TopologyError) as caught:
        check_draft(TopologyDraft("T", list(components.items()), config or {}))
    return list(caught.value.problems)


def test_class_body_becomes_a_definition() -> None:
    definition = WordCount.definition()
    assert definition.name == "WordCount"
    assert definition.id.startswith("WordCount-")
    assert definition.id != WordCount.definition().id
    assert definition.config == {
        "topology.reliability.mode": "ATLEAST_ONCE", "user.path": "/tmp/x", "topology.name": "WordCount",
    }  # fmt: skip
    assert [(c.name, c.kind, c.parallelism) for c in definition.components] == [
        ("words", ComponentKind.SPOUT, 2), ("count", ComponentKind.BOLT, 3), ("audit", ComponentKind.BOLT, 1),
    ]  # fmt: skip
    words, count, audit = definition.components
    assert words.python_class == "tests.unit.api.dsl_parts:Words"
    assert words.outputs == (
        StreamSchema("default", ("word", "line")),
        StreamSchema("errors", ("problem",)),
        StreamSchema("direct", ("to",), True),
    )  # fmt: skip
    assert count.config == {"user.n": 1}
    assert [(i.component, i.stream, i.grouping.kind, i.grouping.fields) for i in (*count.inputs, *audit.inputs)] == [
        ("words", "default", GroupingKind.FIELDS, ("word",)),
        ("words", "errors", GroupingKind.GLOBAL, ()),
        ("count", "default", GroupingKind.ALL, ()),
    ]
    assert TOPOLOGY.decode(TOPOLOGY.encode(definition)) == definition


def test_submitted_name_takes_precedence() -> None:
    class Named(WordCount):
        name = "from-the-class"

    assert Named.definition().name == "from-the-class"
    other = Named.definition("other")
    assert (other.name, other.config["topology.name"], other.id[:6]) == ("other", "other", "other-")
    with pytest.raises(TopologyError, match="'a/b' is not valid in file names"):
        Named.definition("a/b")


def test_subclass_adds_replaces_and_removes_components() -> None:
    class More(WordCount):
        words = Words.spec(par=5)
        audit = None
        last = Batch.spec(inputs=[WordCount.count])

    definition = More.definition()
    assert [(c.name, c.parallelism) for c in definition.components] == [("words", 5), ("count", 3), ("last", 1)]
    assert definition.component("count").inputs[0].component == "words"


def test_builder_equals_a_class_body() -> None:
    builder = TopologyBuilder("WordCount")
    words = builder.add_spout("words", Words, 2)
    count = builder.add_bolt("count", Count, 3, {words: Grouping.fields("word")}, config={"user.n": 1})
    builder.add_spec(
        ComponentDeclaration(Batch, name="audit", inputs={("words", "errors"): Grouping.LOWEST, "count": Grouping.ALL})
    )
    builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE"})
    builder.set_config({"user.path": "/tmp/x"})
    assert builder.build() is builder
    built = builder.definition()
    assert built.components == WordCount.definition().components
    assert built.config == WordCount.definition().config
    assert count.name == "count"


def test_builder_requires_a_name() -> None:
    builder = TopologyBuilder()
    builder.add_spout("words", Words)
    assert builder.definition("given").name == "given"
    with pytest.raises(TopologyError, match="no name"):
        builder.definition()
    with pytest.raises(TopologyError, match="has no name"):
        builder.add_spec(Words.spec())
    with pytest.raises(TypeError, match="not <class"):
        builder.add_spec(Words)  # type: ignore[arg-type]  # the fault under test


def test_listed_inputs_are_shuffled() -> None:
    words = Words.spec()
    definition = check_draft(
        TopologyDraft("T", [("words", words), ("count", Count.spec(inputs=[words, words["errors"]]))])
    )
    assert [(i.stream, i.grouping.kind) for i in definition.component("count").inputs] == [
        ("default", GroupingKind.SHUFFLE), ("errors", GroupingKind.SHUFFLE),
    ]  # fmt: skip


def test_optional_outputs_are_added() -> None:
    spec = Count.spec(name="c", inputs=["words"], optional_outputs=["extra", Stream(["x"], "side")])
    definition = check_draft(TopologyDraft("T", [("words", Words.spec()), ("c", spec)]))
    assert definition.component("c").outputs == (
        StreamSchema("default", ("word", "count", "extra")), StreamSchema("side", ("x",)),
    )  # fmt: skip


def test_parallelism_has_defaults() -> None:
    components = [
        ("words", Words.spec()),
        ("count", Count.spec(inputs=["words"], config={"topology.component.parallelism": 4})),
    ]
    definition = check_draft(TopologyDraft("T", components, {"topology.component.parallelism": 2}))
    assert [c.parallelism for c in definition.components] == [2, 4]


def test_tick_setting_of_a_component_takes_precedence_in_any_unit() -> None:
    draft = TopologyDraft("T", [("w", Words.spec()), ("t", Ticking.spec(inputs=["w"], config={"user.depth": 4}))])
    draft.config = {"topology.tick.tuple.freq.secs": 9}
    definition = check_draft(draft)
    assert definition.component("t").config["user.depth"] == 4
    merged = definition.component_config("t")
    assert (merged["topology.tick.tuple.freq.ms"], merged["topology.tick.tuple.freq.secs"]) == (500, None)


def test_custom_grouping_carries_class_and_arguments() -> None:
    words = Words.spec()
    for custom in (
        Grouping.custom(EvenOdd, modulus=3),
        Grouping.custom("tests.unit.api.dsl_parts:EvenOdd", modulus=3),
        Grouping.custom("tests.unit.api.dsl_parts.EvenOdd", modulus=3),
    ):
        definition = check_draft(TopologyDraft("T", [("w", words), ("c", Count.spec(inputs={words: custom}))]))
        (edge,) = definition.component("c").inputs
        assert edge.grouping.python_class == "tests.unit.api.dsl_parts:EvenOdd"
        assert msgspec.msgpack.decode(edge.grouping.arguments) == {"modulus": 3}


def test_plugin_grouping_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offers = {
        "heronry.groupings": {"even-odd": "tests.unit.api.dsl_parts:EvenOdd", "half": "tests.unit.api.dsl_parts:Words"}
    }
    monkeypatch.syspath_prepend(write_distribution(tmp_path, "my-groupings", offers))
    words = Words.spec()
    named = Grouping.custom("even-odd", modulus=3)
    (edge,) = (
        check_draft(TopologyDraft("T", [("w", words), ("c", Count.spec(inputs={words: named}))])).component("c").inputs
    )
    assert edge.grouping.python_class == "tests.unit.api.dsl_parts:EvenOdd", "instances import it like any other class"
    for wrong, text in (
        (Grouping.custom("even-od"), "unknown grouping 'even-od'; known: 'even-odd', 'half'; did you mean"),
        (Grouping.custom("even-odd", wrong=1), "cannot be made with these"),
        (Grouping.custom("half"), "Words has no prepare and no choose_tasks"),
    ):
        assert text in " ".join(problems({}, w=words, c=Count.spec(inputs={words: wrong})))


def test_all_problems_are_reported_together() -> None:
    words = Words.spec(par=0)
    found = problems(
        {"topology.max.spot.pending": 1, "topology.component.rammap": {"word": "1GB"}},
        words=words,
        count=Count.spec(inputs={words["erors"]: Grouping.SHUFFLE, words: Grouping.fields("wrod")}),
        idle=Idle.spec(inputs=["counts"]),
        lazy=Lazy.spec(),
    )
    assert found == [
        "unknown config key 'topology.max.spot.pending'; the nearest is 'topology.max.spout.pending' "
        "(keys of your own begin with 'user.')",
        "component 'idle': Idle defines neither process nor process_batch; a bolt needs one of them",
        "component 'lazy': Lazy does not define next_tuple, which every spout needs",
        "spout 'words': parallelism is 0; it needs at least one task: par=1",
        "bolt 'count': reads stream 'erors' of 'words', which has the streams 'default', 'errors', 'direct'; "
        "did you mean 'errors'?",
        "bolt 'count': groups stream 'default' of 'words' by 'wrod'; its fields are 'word', 'line'; "
        "did you mean 'word'?",
        "bolt 'idle': reads 'counts', which is not a component of this topology; did you mean 'count'?",
        "config key 'topology.component.rammap' names 'word', which is not a component of this topology; "
        "did you mean 'words'?",
    ]


def test_single_problem_is_one_sentence() -> None:
    with pytest.raises(TopologyError) as caught:

        class Broken(Topology):
            words = Words.spec()
            count = Count.spec(inputs={words: Grouping.DIRECT})

    assert str(caught.value) == (
        "topology 'Broken': bolt 'count': reads stream 'default' of 'words' with Grouping.DIRECT, "
        "but that stream is not direct; declare it Stream(..., direct=True)"
    )


W = Words.spec()


@pytest.mark.parametrize(
    ("components", "words"),
    [
        ({}, "has no components"),
        ({"c": Count.spec(inputs=["c2"]), "c2": Count.spec(inputs=["c"])}, "the streams form a cycle: c -> c2 -> c;"),
        ({"c": Count.spec(inputs=["c"])}, "the streams form a cycle: c -> c;"),
        ({"c": Count.spec(inputs=["d"])}, "has no spout"),
        ({"w": Words.spec(inputs=["w"])}, "spout 'w': has inputs"),
        ({"w": W, "c": Count.spec()}, "bolt 'c': has no inputs"),
        ({"w": W, "c": Count.spec(inputs={W["direct"]: Grouping.SHUFFLE})}, "which is direct, with grouping 'shuffle'"),
        ({"w": W, "c": Count.spec(inputs={W: Grouping.fields()})}, "name at least one: Grouping.fields('word')"),
        ({"w": W, "c": Count.spec(inputs={W: Grouping.fields("word", "word")})}, "by 'word' 2 times"),
        ({"w": W, "c": Count.spec(inputs=[W, "w"])}, "reads stream 'default' of 'w' 2 times"),
        ({"w": W, "b": Batch.spec(inputs=[W]), "c": Count.spec(inputs=["b"])}, "reads 'b', which emits nothing"),
        ({"w": W, "c": Count.spec(inputs={W: Grouping.fields})}, "such as Grouping.fields('word')"),
        ({"w": W, "c": Count.spec(inputs={W: "shuffle"})}, "such as Grouping.SHUFFLE"),
        ({"w": W, "c": Count.spec(inputs=[Words])}, "reads the class Words; name the component made by Words.spec()"),
        ({"w": W, "c": Count.spec(inputs=[Words.spec()])}, "which is not part of this topology"),
        ({"w": W, "c": Count.spec(inputs=W)}, "a list of sources"),
        ({"w": W, "c": Count.spec(inputs={W: Grouping.custom(int)})}, "int has no prepare and no choose_tasks"),
        ({"w": W, "c": Count.spec(inputs={W: Grouping.custom(EvenOdd, wrong=1)})}, "cannot be made with these"),
        ({"w": W, "c": Count.spec(inputs={W: Grouping.custom(EvenOdd, modulus=object())})}, "not plain data"),
        ({"w": W, "c": Count.spec(inputs={W: Grouping.custom("nonsense")})}, "nor a path such as 'module:Class'"),
        ({"w": Words.spec(par="2")}, "par is '2'; write the number of tasks"),
        ({"w": Words.spec(par=True)}, "par is True"),
        ({"w": Words.spec(par=65_536)}, "has 65536 tasks in all; the limit is 65535"),
        ({"w": W, "c": Count.spec(par=1025, inputs={W: Grouping.fields("word")})}, "par=1024"),
        ({"a b": W}, "the component name 'a b' is not valid in file names"),
        ({"a/../b": W}, "is not valid in file names"),
        ({"__stmgr__": W}, "begins with '__'"),
        ({"w": ComponentDeclaration(int)}, "<class 'int'> is not a Spout or Bolt class"),
        ({"w": Words.spec(optional_outputs=["word"])}, "has 2 fields named 'word'"),
        ({"w": Words.spec(optional_outputs=[Stream(["x"], "errors")])}, "declares stream 'errors' 2 times"),
        ({"w": Words.spec(optional_outputs=[Stream(["x"], "a b")])}, "the stream name 'a b'"),
        ({"w": Words.spec(optional_outputs=[Stream([""], "s")])}, "a field without a name"),
        ({"w": Words.spec(optional_outputs=[3])}, "outputs holds 3"),
        ({"w": Words.spec(optional_outputs="word")}, "write a list of field names or Streams"),
        ({"w": Words.spec(config={"topology.stmgrs": 2})}, "holds for the whole topology"),
        ({"w": Words.spec(config={"heron.stop.grace.secs": 2})}, "is the operator's"),
        ({"w": Words.spec(config=[1])}, "config is a list"),
    ],
)  # fmt: skip
def test_problem_names_component_and_remedy(components: dict[str, ComponentDeclaration], words: str) -> None:
    assert any(words in problem for problem in problems(**components)), problems(**components)


def test_duplicate_and_reserved_component_names_are_rejected() -> None:
    with pytest.raises(TopologyError, match="'words' and 'again' are the same component"):

        class Twins(Topology):
            words = Words.spec()
            again = words

    with pytest.raises(TopologyError, match="cannot be named 'config'"):

        class Reserved(Topology):
            config = Words.spec()  # type: ignore[assignment]  # the fault under test

    builder = TopologyBuilder("T")
    builder.add_spout("words", Words)
    builder.add_spout("words", Words)
    with pytest.raises(TopologyError, match="2 components are named 'words'"):
        builder.build()


def test_unimportable_component_classes_are_rejected() -> None:
    class Local(Words):
        pass

    class Here(Topology):  # the topology class may be anywhere, because only components are imported elsewhere
        words = Local.spec()

    with pytest.raises(TopologyError, match="defined inside a function; move it to the top level"):
        Here.definition()

    elsewhere = type("Words", (Spout,), {"__module__": Words.__module__, "next_tuple": lambda self: None})

    class Hidden(Topology):
        words = elsewhere.spec()  # type: ignore[attr-defined]  # made at run time

    with pytest.raises(TopologyError, match="each needs a unique name"):
        Hidden.definition()

    main = type("Main", (Words,), {"__module__": "__main__"})

    class Script(Topology):
        words = main.spec()  # type: ignore[attr-defined]  # made at run time

    with pytest.raises(TopologyError, match="defined in __main__"):
        Script.definition()


def test_base_without_components_is_not_a_topology() -> None:
    class Base(Topology):
        config = {"topology.debug": True}

    with pytest.raises(TopologyError, match="has no components"):
        Base.definition()


def test_public_names_exist_and_import_is_lazy() -> None:
    for name in heronry.__all__:
        assert getattr(heronry, name) is not None
    assert set(heronry.__all__) <= set(dir(heronry))
    with pytest.raises(AttributeError, match="nothing"):
        _ = heronry.nothing
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, heronry; print('heronry.api' in sys.modules, 'grpc' in sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert loaded.stdout.split() == ["False", "False"]


def test_declarations_keep_the_users_spelling() -> None:
    assert repr(Words.spec()) == "Words.spec()"
    assert repr(Words.spec(name="w")["errors"]) == "Words.spec(name='w')['errors']"
    assert repr(Grouping.fields("a", "b")) == "Grouping.fields('a', 'b')"
    assert repr(Grouping.GLOBAL) == "Grouping.GLOBAL"
    assert repr(Stream(["a"], "s", True)) == "Stream(fields=['a'], name='s', direct=True)"
    assert Grouping.fields(["a", "b"]).field_names == ("a", "b")
    assert Stream("word").fields == ("word",)
    assert Config.TOPOLOGY_STMGRS == "topology.stmgrs"
