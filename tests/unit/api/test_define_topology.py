"""Definition of the user's topology in a sub-process: lookup, validation and reported errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from heron_container.zygote import IMPORTED_FOR_INSTANCES
from heron_control.packaging.definer import TopologyTraits
from heron_control.packaging.definition import define_topology
from heron_control.packaging.topology_lookup import FREE_NAMES
from heron_runtime.model.topology import TopologyDefinition
from heronry.api.errors import TopologyError, TopologyNotFound, UserCodeError
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
PARTS = """
from heronry import Bolt, Grouping, Spout, Topology, TopologyBuilder
import sys

class Words(Spout):
    outputs = ["word"]
    def next_tuple(self): pass

class Count(Bolt):
    def process(self, tup): pass
"""
ONE = PARTS + "class WordCount(Topology):\n    words = Words.spec()\n    count = Count.spec(inputs=[words])\n"
BUILDER = "builder = TopologyBuilder('built')\nbuilder.add_spout('words', Words, par=len(sys.argv))\n"
TWO = ONE + BUILDER + "built = builder.build()\n"
PROGRAM = "class Program:\n    def definition(self, name=None):\n        return {}\nflow = Program()\n"
FAILING = """
print('so far')
def half(x):
    return 1 / x
try:
    half(0)
except ZeroDivisionError as error:
    raise ValueError('bad') from error
"""


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write_file(text: str, name: str = "my_topology.py") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write_file


def test_single_topology_needs_no_name(write: Any) -> None:
    definition = define_topology(write(ONE))
    assert definition.name == "WordCount"
    assert [c.python_class for c in definition.components] == ["my_topology:Words", "my_topology:Count"]


def test_topology_is_selected_by_name_with_arguments(write: Any) -> None:
    file = write(TWO)
    assert define_topology(file, "WordCount", name="other").name == "other"
    built = define_topology(file, "builder", args=["a", "--b", "--"])
    assert (built.name, built.components[0].parallelism) == ("built", 4)
    assert built.config["topology.arguments"] == ["a", "--b", "--"]
    plain = define_topology(file, "my_topology:built")
    assert (plain.name, plain.config.get("topology.arguments")) == ("built", None)


def test_several_topologies_require_a_name(write: Any) -> None:
    with pytest.raises(TopologyNotFound) as caught:
        define_topology(write(TWO))
    assert str(caught.value) == "my_topology.py holds 2 topologies; name one: 'WordCount', 'builder'"


@pytest.mark.parametrize(
    ("text", "topology", "words"),
    [
        (TWO, "WordCont", "my_topology.py has no topology 'WordCont'; did you mean 'WordCount'?"),
        (TWO, "xyz", "has no topology 'xyz'; it holds 'WordCount', 'builder'"),
        (TWO, "Words", "'Words' in my_topology.py is a Spout, not a topology; it holds 'WordCount', 'builder'"),
        (TWO, "sys", "'sys' in my_topology.py is a module"),
        (PARTS, None, "holds no topology: no subclass of Topology with components, no builder"),
    ],
)
def test_missing_topology_is_reported_with_alternatives(
    write: Any, text: str, topology: str | None, words: str
) -> None:
    with pytest.raises(TopologyNotFound) as caught:
        define_topology(write(text), topology)
    assert words in str(caught.value)


def test_missing_or_non_python_file_is_rejected(tmp_path: Path, write: Any) -> None:
    with pytest.raises(TopologyNotFound, match="no such file"):
        define_topology(tmp_path / "none.py")
    with pytest.raises(TopologyNotFound, match=r"neither a \.py file nor a folder"):
        define_topology(write("", "notes.txt"))


def test_any_object_with_a_definition_is_accepted(write: Any) -> None:
    assert define_topology(write(ONE + PROGRAM.format("WordCount.definition(name)")), "flow").name == "flow"
    with pytest.raises(TopologyError, match="returned 3, not a TopologyDefinition"):
        define_topology(write(ONE + PROGRAM.format("3")), "flow")


def test_all_problems_and_their_location_are_reported(write: Any) -> None:
    broken = PARTS + "class Broken(Topology):\n    words = Words.spec(par=0)\n    count = Count.spec()\n"
    with pytest.raises(TopologyError) as caught:
        define_topology(write(broken))
    assert len(caught.value.problems) == 2
    assert caught.value.topology == "Broken"
    assert str(caught.value).startswith("topology 'Broken' (my_topology.py, line 11) is not valid, 2 problems:")


def test_unimportable_class_paths_are_reported(write: Any) -> None:
    text = PARTS + (
        "class T(Topology):\n    config = {'topology.serializer': 'my_topology:Nothing'}\n    words = Words.spec()\n"
        "    count = Count.spec(inputs={words: Grouping.custom('nowhere:Custom')})\n"
    )
    with pytest.raises(TopologyError) as caught:
        define_topology(write(text))
    assert [p.split(" cannot be imported")[0] for p in caught.value.problems] == [
        "bolt 'count', custom grouping: nowhere:Custom",
        "config key 'topology.serializer': my_topology:Nothing",
    ]


def test_unsafe_name_is_rejected(write: Any) -> None:
    with pytest.raises(TopologyError, match="'a b' is not valid in file names"):
        define_topology(write(ONE), name="a b")


def test_exception_shows_only_user_frames(write: Any) -> None:
    with pytest.raises(UserCodeError) as caught:
        define_topology(write(FAILING))
    assert str(caught.value) == "my_topology.py raised ValueError: bad"
    assert caught.value.output == "so far\n"
    assert "return 1 / x" in caught.value.traceback
    assert "ZeroDivisionError" in caught.value.traceback
    assert "heronry" not in caught.value.traceback
    assert "importlib" not in caught.value.traceback


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def f(:\n", "raised SyntaxError: invalid syntax"),
        ("import sys\nsys.exit(4)\n", "called sys.exit(4) while it was imported"),
        ("import argparse\np = argparse.ArgumentParser()\np.add_argument('x')\np.parse_args()\n", "called sys.exit(2)"),
        ("import os\nos._exit(9)\n", "ended the process that imported it (exit code 9)"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "(SIGSEGV)"),
        ("import a_module_of_nobody\n", "requirements.txt that names the distribution of a_module_of_nobody"),
        ("raise KeyboardInterrupt\n", "raised KeyboardInterrupt"),
        ("class Odd(BaseException): pass\nraise Odd('x')\n", "raised my_topology.Odd: x"),
        ("import os\nos.closerange(0, 100)\nraise ValueError('x')\n", "raised ValueError: x"),
        ("import os, sys\nsys.stdout = None\nos.closerange(0, 100)\nsys.exit()\n", "called sys.exit(None) while"),
        ("raise ValueError('a\\r\\nheron: fake line\\x1b[2J')\n", r"raised ValueError: a\r\nheron: fake line\x1b[2J"),
        (
            "class Mute(Exception):\n    def __str__(self): return 1 / 0\nraise Mute\n",
            "raised my_topology.Mute: (its text",
        ),
        ("e = ValueError('x')\ne.add_note('y')\nraise e\n", "raised ValueError: x"),
        (
            "import os, sys\nopen(sys.orig_argv[sys.orig_argv.index('--output') + 1], 'w').write('{')\nos._exit(0)\n",
            "corrupted",
        ),
    ],
)
def test_code_that_does_not_finish_is_reported(write: Any, text: str, words: str) -> None:
    with pytest.raises(UserCodeError) as caught:
        define_topology(write(text))
    assert words in str(caught.value)


def test_long_exception_is_abbreviated(write: Any) -> None:
    text = "print('y' * 10**7)\nfor n in range(10**5): print(n)\nraise ValueError('x' * 10**7)\n"
    with pytest.raises(UserCodeError) as caught:
        define_topology(write(text))
    assert len(str(caught.value)) < 1100
    for shown in caught.value.details:
        assert len(shown.splitlines()) <= 41
        assert len(shown) < 41 * 410
    assert caught.value.output.endswith("99999\n")


def test_code_that_closes_all_files_still_defines_its_topology(write: Any) -> None:
    assert define_topology(write(ONE + "import os\nos.closerange(0, 100)\n")).name == "WordCount"


def test_spouts_with_ack_or_fail_are_reported(write: Any) -> None:
    text = PARTS + (
        "class Heard(Words):\n    def fail(self, tup_id, reason): pass\n    def ack(self, tup_id): pass\n"
        "class Sub(Heard): pass\n"
        "class T(Topology):\n    a = Words.spec()\n    b = Sub.spec()\n    c = Count.spec(inputs=[a, b])\n"
    )
    said: list[TopologyTraits] = []
    define_topology(write(text), "T", tells=said.append)
    assert said[0].hearing == {"b": ["ack", "fail"]}


def test_spouts_that_emit_ids_are_reported(write: Any) -> None:
    text = PARTS + (
        "class Ids(Words):\n    def next_tuple(self): self.emit(['w'], tup_id=1)\n"
        "class Sub(Ids): pass\n"
        "class Plain(Words):\n    def next_tuple(self): self.emit(['w'], tup_id=None)\n"
        "class T(Topology):\n    a = Plain.spec()\n    b = Sub.spec()\n    c = Count.spec(inputs=[a, b])\n"
    )
    said: list[TopologyTraits] = []
    define_topology(write(text), "T", tells=said.append)
    assert said[0].hearing == {"b": ["tup_id"]}


def test_missing_input_of_a_program_is_reported(write: Any, tmp_path: Path) -> None:
    text = (
        "from heronry.streamlet import Builder, files, to_files\n"
        f"program = Builder('p')\nprogram.source(files({str(tmp_path / 'none')!r}), name='lines')"
        ".sink(to_files('out'), name='output')\n"
    )
    said: list[TopologyTraits] = []
    define_topology(write(text), "program", tells=said.append)
    (found,) = said[0].missing
    assert f"step 'lines': there is nothing to read at {tmp_path / 'none'}" in found


def test_steps_of_a_program_that_drop_late_records_are_reported(write: Any) -> None:
    text = (
        "from heronry.streamlet import Builder, collect, tumbling\n"
        "program = Builder('p')\n"
        "keyed = program.source([{'k': 1, 't': 1}], event_time='t').key_by('k')\n"
        "keyed.count_by_key(name='all').sink(collect(), name='a')\n"
        "keyed.window(tumbling(5)).count_by_key(name='dropping').sink(collect(), name='b')\n"
        "kept = keyed.window(tumbling(9)).count_by_key(name='keeping')\n"
        "kept.late().sink(collect(), name='c')\n"
    )
    said: list[TopologyTraits] = []
    define_topology(write(text), "program", tells=said.append)
    assert said[0].drops_late == ["dropping"]


def test_sinks_are_reported_with_their_output_effect(write: Any) -> None:
    text = PARTS + (
        "from heronry import TwoPhaseSink\nclass Middle(Count):\n    outputs = ['word']\n"
        "class Safe(TwoPhaseSink):\n    commits_alone = True\n    def process(self, tup): pass\n"
        "class Upsert(Count):\n    output_effect = 'idempotent'\n"
        "class Print(Count):\n    output_effect = 'at_least_once'\n"
        "class T(Topology):\n    a = Words.spec()\n    middle = Middle.spec(inputs=[a])\n"
        "    plain = Count.spec(inputs=[middle])\n    safe = Safe.spec(inputs=[middle])\n"
        "    upsert = Upsert.spec(inputs=[middle])\n    shown = Print.spec(inputs=[middle])\n"
    )
    said: list[TopologyTraits] = []
    define_topology(write(text), "T", tells=said.append)
    assert said[0].ends == {"plain": "", "upsert": "idempotent", "shown": "at_least_once"}


def test_unknown_output_effect_is_rejected(write: Any) -> None:
    text = PARTS + (
        "class Odd(Count):\n    output_effect = 'twice'\n"
        "class T(Topology):\n    a = Words.spec()\n    b = Odd.spec(inputs=[a])\n"
    )
    with pytest.raises(TopologyError, match=r"Odd.output_effect is 'twice'; write 'idempotent' or 'at_least_once'"):
        define_topology(write(text), "T")


def test_neighbouring_module_is_not_found(write: Any) -> None:
    write("", "neighbour.py")
    with pytest.raises(UserCodeError, match=r"to ship neighbour too, submit the folder that holds both"):
        define_topology(write("import neighbour\n"))


@pytest.mark.parametrize("name", ["json.py", "numpy.py", "heronry.py"])
def test_file_named_like_an_installed_module_is_rejected(write: Any, name: str) -> None:
    with pytest.raises(TopologyError, match="already exists"):
        define_topology(write(ONE, name))


@pytest.mark.parametrize("name", sorted(FREE_NAMES))
def test_name_that_instances_do_not_import_is_allowed(write: Any, tmp_path: Path, name: str) -> None:
    file = write(ONE, f"{name}.py")
    assert define_topology(file).components[0].python_class == f"{name}:Words"
    write("from words import *\n", f"package/{name}/__init__.py")
    write(ONE, "package/words.py")
    assert define_topology(tmp_path / "package", "words:WordCount").components[0].python_class == "words:Words"


def test_free_names_are_not_imported_by_instances() -> None:
    modules = ["heron_container.zygote", *IMPORTED_FOR_INSTANCES]
    code = f"import sys\n{''.join(f'import {name}; ' for name in modules)}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    imported = {name.partition(".")[0] for name in done.stdout.split()}
    assert not imported & FREE_NAMES
    products = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"examples", "tests", "benchmarks"}
    assert products - imported == (products & FREE_NAMES) | {"heron_control"}, "the definer imports heron_control"


def test_file_name_with_a_dot_is_rejected(write: Any) -> None:
    with pytest.raises(TopologyError, match="invalid module name"):
        define_topology(write(ONE, "my.topology.py"))


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_hanging_code_is_killed_with_its_children(write: Any, tmp_path: Path) -> None:
    text = (
        "import subprocess, sys, pathlib, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child.pid))\ntime.sleep(600)\n"
    )
    with pytest.raises(UserCodeError, match=r"within 2 s"):
        define_topology(write(text), timeout=2)
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: has_ended(pid), f"process {pid}, a child of the hanging code, to end")


def test_threads_do_not_delay_the_definition_and_prints_are_passed_on(write: Any) -> None:
    said: list[str] = []
    text = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\nprint('hello')\n" + ONE
    assert define_topology(write(text), timeout=30, show=said.append).name == "WordCount"
    assert said == ["hello\n"]


def test_single_file_definition_leaves_no_other_files(write: Any) -> None:
    file = write(ONE)
    define_topology(file)
    assert [path.name for path in file.parent.iterdir()] == ["my_topology.py"]


def test_topology_is_found_in_a_folder_of_modules(write: Any, tmp_path: Path) -> None:
    write(ONE.replace("class Count", "from lib.tools import helper\nclass Count"), "flows.py")
    write("def helper(): pass\n", "lib/tools.py")
    write("", "lib/__init__.py")
    write(PARTS, "other.py")
    assert define_topology(tmp_path, "flows").components[0].python_class == "flows:Words"
    assert define_topology(tmp_path, "flows:WordCount").name == "WordCount"
    assert define_topology(tmp_path, "flows.WordCount").name == "WordCount"
    assert define_topology(tmp_path, "WordCount").name == "WordCount"
    for topology, words in [
        (None, "holds the modules 'flows', 'lib', 'other'; name one as MODULE:CLASS"),
        ("flow:WordCount", "has no module 'flow'; did you mean 'flows'?"),
        ("flows:WordCont", "flows has no topology 'WordCont'; did you mean 'WordCount'?"),
        ("WordCont", "has neither a module nor a class 'WordCont'; did you mean 'WordCount'?"),
        ("Words", "has 'Words' in several modules; name one: 'flows:Words', 'other:Words'"),
        ("other", "other holds no topology"),
    ]:
        with pytest.raises(TopologyNotFound) as caught:
            define_topology(tmp_path, topology)
        assert words in str(caught.value)


def test_topology_is_found_in_a_package_folder(write: Any, tmp_path: Path) -> None:
    write("from wordcount.flows import WordCount\n", "wordcount/__init__.py")
    write(ONE, "wordcount/flows.py")
    for place in (tmp_path, tmp_path / "wordcount"):
        for topology in (None, "wordcount", "wordcount.flows", "wordcount.flows:WordCount"):
            definition = define_topology(place, topology)
            assert definition.components[0].python_class == "wordcount.flows:Words"


def test_folder_definition_leaves_no_compiled_files(write: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    write(ONE, "flows.py")
    assert define_topology(tmp_path, "flows").name == "WordCount"
    assert os.listdir(tmp_path) == ["flows.py"], "no compiled files"


def test_folder_module_that_hides_another_is_rejected(write: Any, tmp_path: Path) -> None:
    write(ONE, "flows.py")
    write("", "random.py")
    with pytest.raises(TopologyError, match="the package has a module 'random', and so has Python"):
        define_topology(tmp_path, "flows")


def test_entry_point_writes_its_result_to_the_output(write: Any, tmp_path: Path) -> None:
    def run(*arguments: str) -> int:
        module = "heron_control.packaging.define"
        command = [sys.executable, "-m", module, *arguments, "--output", str(tmp_path / "answer")]
        return subprocess.run(command, check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}).returncode

    file = str(write(ONE))
    assert run(file, "WordCount") == 0
    answer = (tmp_path / "answer").read_bytes()
    assert msgspec.msgpack.decode(answer, type=TopologyDefinition).name == "WordCount"
    for arguments, code, kind in [
        ((file, "Nothing"), 3, "not_found"),
        ((file, "--name", "a b"), 7, "invalid"),
        ((str(write("1 / 0", "bad.py")),), 1, "raised"),
    ]:
        assert run(*arguments) == code
        assert json.loads((tmp_path / "answer").read_bytes())["kind"] == kind
