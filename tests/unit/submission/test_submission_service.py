"""Submit and kill from the command line: progress messages, Ctrl-C, and an unwritable store.

Behaviour shared with the API server is tested in ``tests/unit/heron_apiserver/test_topology_service.py``.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heron_control.packing import pack
from heron_control.progress import Progress, silent
from heron_control.schedulers.local import LocalScheduler
from heron_control.submission.service import SubmissionService
from heron_control.submission.submission import ClusterConfig, Submission
from heron_runtime.failures import Interrupted, NotFound
from heron_runtime.launch import Launch
from heron_runtime.model.records import ExecutionState
from heron_runtime.model.topology import ComponentKind, ComponentSpec, StreamSchema, TopologyDefinition
from heron_runtime.state import StoreAddress, open_store, topologies
from heron_runtime.state.store import Operation, StateStore, StoreUnavailable
from heron_runtime.state.topologies import AlreadyExists

OF_A_PROGRAM = {"user.streamlet.program": "m:text_words"}
SPOUT = ComponentSpec("word", ComponentKind.SPOUT, "m:Word", 1, (StreamSchema(fields=("word",)),), config=OF_A_PROGRAM)


class ScriptedScheduler(LocalScheduler):
    """Local scheduler without processes: a start returns a number, and ``told`` records the calls."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.interrupts = ""

    def _at(self, step: str) -> None:
        self.told.append(step)
        if step == self.interrupts:
            raise KeyboardInterrupt

    def start(self, launch: Launch, launch_file: Path) -> int:
        """Return process id 7."""
        self._at(f"start {launch.topology_id}")
        return 7

    def kill(self, launch: Launch, progress: Progress = silent, *, untold: bool = False) -> None:
        """Return at once."""
        progress("waiting")
        self._at(f"kill {launch.topology_id}{' untold' if untold else ''}")


class FullStore:
    """Store whose disk is full while ``full`` is set."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self.full = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        """Fail while the disk is full."""
        if self.full:
            raise StoreUnavailable("the disk is full")
        return self._store.commit(operations)


class World:
    """Home, its store and a service."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir(exist_ok=True)
        self.address = StoreAddress((home / "state").as_uri().replace("file:", "files:", 1))
        store = open_store(self.address.url)
        store.open()
        self.real = store
        self.store = FullStore(store)
        self.scheduler = ScriptedScheduler()
        self.said: list[str] = []
        self.service = self.at(home)

    def at(self, home: Path, *, shared: bool = False) -> SubmissionService:
        """Return a service of another home over the same store."""
        store: Any = self.store  # delegates everything else
        return SubmissionService(ClusterConfig(home, "local", self.address, shared), store, self.scheduler)

    def submit(self, serial: int = 1, **more: Any) -> int | None:
        """Submit a package staged as on the command line."""
        package = self.home / f"staged-{serial}"
        package.mkdir()
        (package / "words.py").write_text("x = 1\n")
        definition = TopologyDefinition("words", f"words-{serial}", (SPOUT,))
        wanted = Submission(definition, pack(definition), package, "ada", "default", "ada")
        return self.service.submit(wanted, self.said.append, **more)

    def folders(self) -> list[str]:
        """Return the topology folders, including staged ones."""
        return [path.name for path in self.home.glob("topologies/*/*/*/*")]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = World(tmp_path / "home")
    yield made
    made.real.close()


def test_submit_and_kill_report_their_progress(world: World) -> None:
    assert world.submit() == 7
    place = world.home / "topologies/local/ada/default/words"
    launch = Launch.load(place / "launch.json")
    assert (launch.package_dir / "words.py").exists()
    assert not (world.home / "staged-1").exists(), "it was moved, not copied"
    assert [stat.S_IMODE((place / name).stat().st_mode) for name in (".", "secret", "key.pem")] == [0o700, 0o400, 0o400]
    assert Path(launch.runtime_dir).is_dir()
    assert world.said == ["writing the state", "starting the containers"]
    with pytest.raises(AlreadyExists):
        world.submit(2)
    assert world.service.kill("words", "ada", "default", world.said.append) == ""
    assert world.said[2:] == ["waiting"]
    assert world.folders() == []
    assert not Path(launch.runtime_dir).exists()
    with pytest.raises(NotFound):
        world.service.kill("words", "ada", "default")


def test_kill_by_variable_name_suggests_the_topology_name(world: World) -> None:
    world.submit()  # from the component's configuration: see SPOUT
    with pytest.raises(NotFound, match="the program in the variable 'text_words' runs as 'words'"):
        world.service.kill("text_words", "ada", "default")
    with pytest.raises(NotFound, match=r"unknown topology 'wrods' in local; did you mean 'words'\?"):
        world.service.kill("wrods", "ada", "default")


def test_replace_ends_the_old_topology_when_the_new_one_is_ready(world: World) -> None:
    world.submit()
    world.submit(2, replace=True)
    assert world.scheduler.told == ["start words-1", "kill words-1", "start words-2"]
    assert world.said.index("waiting") < world.said.index("writing the state", 2)


def test_ctrl_c_during_a_submit_leaves_nothing(world: World) -> None:
    world.scheduler.interrupts = "start words-1"
    with pytest.raises(KeyboardInterrupt):
        world.submit()
    assert world.folders() == []
    assert topologies.list_topologies(world.real) == ()
    assert world.scheduler.told == ["start words-1", "kill words-1"]
    assert world.submit(2) == 7


def test_ctrl_c_during_a_kill_is_finished_by_the_next_kill(world: World) -> None:
    world.submit()
    world.scheduler.interrupts = "kill words-1"
    with pytest.raises(Interrupted, match="`heron kill` again finishes that"):
        world.service.kill("words", "ada", "default")
    assert world.folders() == ["words"]
    assert topologies.list_topologies(world.real) == ()
    world.scheduler.interrupts = ""
    world.service.kill("words", "ada", "default")
    assert world.folders() == []


def test_insistent_kill_ends_processes_without_a_writable_store(world: World) -> None:
    world.submit()
    world.store.full = True
    with pytest.raises(StoreUnavailable):
        world.service.kill("words", "ada", "default")
    assert world.scheduler.told == ["start words-1"], "nothing was done"
    with pytest.raises(StoreUnavailable):
        world.service.kill("words", "ada", "default", world.said.append, insist=True)
    assert world.scheduler.told[1:] == ["kill words-1 untold"]
    assert "the disk is full; ending the processes first" in world.said
    assert world.folders() == []
    world.store.full = False
    world.service.kill("words", "ada", "default", insist=True)
    assert topologies.list_topologies(world.real) == ()


def test_homes_with_a_shared_store_find_each_others_folders(world: World, tmp_path: Path) -> None:
    world.submit()
    other = world.at(tmp_path / "other", shared=True)
    assert other.kill("words", "ada", "default", keep_logs=True) == str(
        world.home / "topologies/local/ada/default/words/log-files"
    )


@pytest.mark.parametrize("shared", [True, False])
def test_forged_record_does_not_remove_another_topologys_folder(world: World, shared: bool) -> None:
    """A topology wrote another's folder and id into its record; its kill must not remove that folder."""
    world.submit()
    victim = world.home / "topologies/local/ada/default/words"
    record = topologies.read_topology(world.real, "words")
    forged = replace(record.execution, topology="thief", home=str(victim))
    definition = replace(record.definition, name="thief")
    topologies.submit(world.real, definition, record.packing, forged)
    world.at(world.home, shared=shared).kill("thief", "ada", "default")
    assert (victim / "key.pem").is_file()


@pytest.mark.parametrize("serial", [None, 9])
def test_forged_home_is_not_removed(world: World, tmp_path: Path, serial: int | None) -> None:
    """User code may be able to write to its cluster's store: the folder it names is not removed."""
    world.submit()
    place = world.home / "topologies/local/ada/default/words"
    precious = tmp_path / "precious"
    precious.mkdir()
    if serial is not None:  # of another topology
        replace(Launch.load(place / "launch.json"), topology_id=f"words-{serial}").save(precious / "launch.json")
    (place / "launch.json").unlink()
    record = topologies.read_topology(world.real, "words")
    topologies.kill(world.real, "words")
    forged: ExecutionState = replace(record.execution, home=str(precious))
    topologies.submit(world.real, record.definition, record.packing, forged)
    world.service.kill("words", "ada", "default")
    assert precious.is_dir()
    assert world.folders() == []


def test_unknown_topology_is_not_held(tmp_path: Path) -> None:
    world = World(tmp_path)
    held: list[Launch] = []
    world.scheduler.hold = held.append  # type: ignore[method-assign]
    with pytest.raises(NotFound):
        world.service.kill("nothing", "ada", "default", keep_logs=True)
    assert held == []
