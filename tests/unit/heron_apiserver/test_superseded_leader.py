"""API server that was stopped during a submit or a kill and resumes after another has led."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from heron_apiserver.audit import AuditLog
from heron_apiserver.packages import PackageRepository
from heron_apiserver.recovery import recover
from heron_apiserver.request_log import RequestLog
from heron_apiserver.topologies import PlacedTopologies
from heron_control.schedulers.topology_folder import take_place
from heron_control.submission.submission import ClusterConfig
from heron_runtime.launch import Launch
from heron_runtime.state import StoreAddress, paths, topologies
from heron_runtime.state.memory import MemoryStore, MemoryTree
from heron_runtime.state.store import Create
from heron_runtime.state.wrappers import LeadershipLost, fenced
from tests.unit.heron_apiserver.plain_scheduler import PlainScheduler, submit

NODE = paths.api_server("box")
PLACE = Path("topologies", "box", "ads", "prod", "words")


class SleepyScheduler(PlainScheduler):
    """Scheduler that runs ``asleep`` within a step, in place of the time the process is stopped."""

    asleep: Callable[[], None] | None = None

    def at(self, step: str) -> None:
        super().at(step)
        happens, self.asleep = self.asleep, None
        if happens is not None:
            happens()


class Replicas:
    """Two API servers of one home: ``first`` leads; ``hand_over`` makes ``second`` lead and recover."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir(mode=0o700)
        self.tree = MemoryTree()
        self.scheduler = SleepyScheduler(home.with_name("runs"))
        self.first_store, self.first = self._server()
        self.second_store, self.second = self._server()
        self.first_store.commit([Create(NODE, b"first", ephemeral=True)])

    def _server(self) -> tuple[MemoryStore, PlacedTopologies]:
        store = MemoryStore(self.tree)
        store.open()
        config = ClusterConfig(self.home, "box", StoreAddress("memory:"))
        return store, PlacedTopologies(config, fenced(store, NODE), self.scheduler, PackageRepository(self.home))

    def hand_over(self) -> None:
        self.first_store.expire_session()
        self.second_store.commit([Create(NODE, b"second", ephemeral=True)])
        recover(self.second, RequestLog(self.home), AuditLog(self.home / "audit.jsonl"))

    def stands(self) -> str:
        """Return the stored submission, after checking that it alone is in place and running."""
        (state,) = topologies.list_topologies(self.second_store)
        launch = Launch.load(self.home / PLACE / "launch.json")
        assert launch.topology_id == state.topology_id
        assert (self.home / PLACE / "secret").exists()
        assert [p.name for p in (self.home / PLACE).parent.iterdir()] == [PLACE.name], "nothing is staged"
        assert self.scheduler.running() == {state.topology_id}
        return state.topology_id


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    return Replicas(tmp_path / "home")


def test_resumed_kill_does_not_affect_a_new_submission(replicas: Replicas) -> None:
    submit(replicas.first)

    def meanwhile() -> None:
        replicas.hand_over()  # the second server finishes the kill
        submit(replicas.second, 2)

    replicas.scheduler.asleep = meanwhile
    with pytest.raises(LeadershipLost):
        replicas.first.submissions.kill("words", "ads", "prod")
    assert replicas.stands() == "words-2"


def test_submit_resumed_before_its_transaction_leaves_nothing(replicas: Replicas) -> None:
    def meanwhile() -> None:
        replicas.hand_over()  # the second server removes the staged folder
        submit(replicas.second, 2)

    replicas.scheduler.asleep = meanwhile  # in prepare
    with pytest.raises((LeadershipLost, OSError)):
        submit(replicas.first)
    assert replicas.stands() == "words-2"


def test_submit_stopped_after_its_transaction_is_finished_by_the_other(replicas: Replicas) -> None:
    commit = replicas.first_store.commit

    def slept(operations: list[object]) -> list[int]:
        done = commit(operations)  # type: ignore[arg-type]  # as it was called
        if any(isinstance(o, Create) and o.path == paths.execution_state("words") for o in operations):
            replicas.hand_over()
        return done

    replicas.first_store.commit = slept  # type: ignore[method-assign,assignment]  # after the commit
    with pytest.raises((LeadershipLost, OSError)):
        submit(replicas.first)
    assert replicas.stands() == "words-1"


def test_lost_staged_folder_leaves_the_place_alone(tmp_path: Path) -> None:
    place = tmp_path / "words"
    place.mkdir()
    (place / "launch.json").write_text("{}")
    with pytest.raises(FileNotFoundError):
        take_place(tmp_path / ".words.1", place)
    assert (place / "launch.json").exists()
