"""Submit and kill are atomic across failures, concurrency, crashes and changes of the leader."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heron_apiserver.audit import AuditLog
from heron_apiserver.packages import PackageRepository
from heron_apiserver.recovery import recover
from heron_apiserver.request_log import RequestLog
from heron_apiserver.responses import error_response_for
from heron_apiserver.submit_request import check_definition
from heron_apiserver.topologies import PlacedTopologies
from heron_control.schedulers.known_store import STORE_ID_FILE, confirm_store
from heron_control.schedulers.scheduler import SchedulerError
from heron_control.schedulers.topology_folder import take_place
from heron_control.submission.submission import ClusterConfig
from heron_runtime.failures import NotFound
from heron_runtime.launch import Launch
from heron_runtime.net.handshake import prove_download
from heron_runtime.state import StoreAddress, paths, topologies
from heron_runtime.state.memory import MemoryStore, MemoryTree
from heron_runtime.state.store import Create, Operation, StoreReplaced, StoreUnavailable, ValueTooLarge, store_identity
from heron_runtime.state.topologies import AlreadyExists
from heron_runtime.state.wrappers import LeadershipLost, fenced
from tests.unit.heron_apiserver import plain_scheduler
from tests.unit.heron_apiserver.plain_scheduler import STEPS, PlainScheduler, definition, fields, package, submit, world

PLACE = "topologies/box/ads/prod"
World = tuple[PlacedTopologies, PlainScheduler]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    service, scheduler, store = world(tmp_path / "home")
    yield service, scheduler
    store.close()


def nothing_is_left(service: PlacedTopologies, scheduler: PlainScheduler) -> None:
    home = service.config.home
    assert list((home / "topologies").glob("*/*/*/*")) == []
    assert topologies.list_topologies(service.submissions.store) == ()
    assert scheduler.running() == scheduler.made() == set()
    assert service.launches == {}
    assert list((home / "uploads").iterdir()) == []


def test_submit_and_kill_round_trip(made: World) -> None:
    service, scheduler = made
    assert submit(service)
    folder = service.config.home / PLACE / "words"
    assert Launch.load(folder / "launch.json").host == "inside"
    assert scheduler.running() == {"words-1"}
    secret = (folder / "secret").read_text()
    digest = Launch.load(folder / "launch.json").package_digest
    proof = prove_download(secret, "words-1", digest, "n")
    assert service.verify_download_proof("words-1", digest, "n", proof)
    for asked in (("words-1", digest, "m"), ("words-1", "0" * 64, "n"), ("words-2", digest, "n")):
        assert not service.verify_download_proof(*asked, proof)
    assert not service.verify_download_proof("words-2", digest, "n", prove_download("0" * 64, "words-2", digest, "n"))
    assert service.find_package_digest("words-1") == digest
    assert not submit(service)  # the same submission already runs
    assert service.submissions.kill("words", "ads", "prod") == ""
    nothing_is_left(service, scheduler)
    assert service.packages.digests() == []
    with pytest.raises(NotFound):
        service.submissions.kill("words", "ads", "prod")


@pytest.mark.parametrize("step", ["prepare", "before commit", "start"])
def test_failed_submit_leaves_nothing(made: World, step: str) -> None:
    service, scheduler = made
    scheduler.fails = {step}
    with pytest.raises(SchedulerError):
        submit(service)
    nothing_is_left(service, scheduler)
    scheduler.fails = set()
    assert submit(service)


def test_one_of_concurrent_submits_wins(made: World) -> None:
    service, scheduler = made
    digest = package(service)

    def attempt(serial: int) -> bool:
        mine = definition(serial)
        try:
            with service.packages.hold(digest):
                return service.submit(fields(), mine, check_definition(mine, fields()), digest)
        except AlreadyExists:
            return False

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(attempt, range(16)))
    assert won.count(True) == 1
    assert scheduler.running() == scheduler.made() == {f"words-{won.index(True)}"}
    assert [p.name for p in (service.config.home / PLACE).iterdir()] == ["words"]


def test_topology_with_a_lost_folder_can_be_killed(made: World) -> None:
    service, scheduler = made
    submit(service)
    (service.config.home / PLACE / "words" / "launch.json").unlink()
    service.submissions.kill("words", "ads", "prod")
    nothing_is_left(service, scheduler)


def test_logs_are_kept_if_requested(made: World) -> None:
    service, _ = made
    submit(service)
    folder = service.config.home / PLACE / "words"
    (folder / "log-files").mkdir()
    (folder / "log-files" / "a.log").write_text("last words")
    assert service.submissions.kill("words", "ads", "prod", keep_logs=True) == str(folder / "log-files")
    assert [p.name for p in folder.iterdir()] == ["log-files"]
    assert (folder / "log-files" / "inside.log").read_text() == "all that was said\n"
    submit(service, 2)
    assert (folder / "log-files" / "previous" / "a.log").read_text() == "last words"


def test_oversized_definition_replaces_nothing(made: World) -> None:
    service, scheduler = made
    submit(service)

    class Small:
        """Store with room for little."""

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def check_size(self, operations: Sequence[Operation]) -> None:
            """Reject the definition as too large."""
            size = sum(len(o.data) for o in operations if isinstance(o, Create))
            raise ValueTooLarge(f"a transaction has at most 10 bytes, this one {size}")

    store, service.submissions.store = service.submissions.store, Small()  # type: ignore[assignment]  # delegates the rest
    with pytest.raises(ValueTooLarge, match=r"at most 10 bytes, this one [0-9]+") as refused:
        submit(service, 2, replace=True)
    answer = error_response_for(refused.value)
    assert answer.status_code == 422
    assert b"at most 10 bytes" in answer.body
    assert scheduler.running() == scheduler.made() == {"words-1"}, "the one that was to be replaced runs on"


def test_unopened_store_is_reported_as_unavailable(tmp_path: Path) -> None:
    service, _, store = world(tmp_path / "home")
    store.close()
    with pytest.raises(StoreUnavailable) as refused:
        service.inspector.find("words", "ads", "prod")
    assert error_response_for(refused.value).status_code == 503


@pytest.mark.parametrize("step", STEPS)
def test_crash_leaves_the_submission_complete_or_absent(tmp_path: Path, step: str) -> None:
    home = tmp_path / "home"
    script = plain_scheduler.__file__
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, script, str(home), step], env={**os.environ, "PYTHONPATH": root}, timeout=60, check=False
    )
    assert done.returncode == 9
    (home / "uploads").mkdir(exist_ok=True)
    (home / "uploads" / "half").write_bytes(b"half an upload")
    service, scheduler, store = world(home)
    try:
        recover(service, RequestLog(home), AuditLog(home / "audit.jsonl"))
        recover(service, RequestLog(home), AuditLog(home / "audit.jsonl"))  # recovery is idempotent
        assert list((home / "uploads").iterdir()) == []
        if step in ("after commit", "start"):
            assert scheduler.running() == scheduler.made() == set(service.launches) == {"words-1"}
            assert [p.name for p in (home / PLACE).iterdir()] == ["words"]
            assert len(service.packages.digests()) == 1
            service.submissions.kill("words", "ads", "prod")
        nothing_is_left(service, scheduler)
        assert service.packages.digests() == []
    finally:
        store.close()


def test_a_kill_is_found_and_a_lost_store_is_refused(tmp_path: Path) -> None:
    service, _, store = world(tmp_path / "home")
    home = service.config.home
    confirm_store(store, home)
    submit(service)
    assert Launch.load(home / PLACE / "words" / "launch.json").store_id == store_identity(store)
    service.submissions.kill("words", "ads", "prod")
    confirm_store(store, home)
    store.close()
    shutil.rmtree(home / "state")
    store.open()
    with pytest.raises(StoreReplaced) as refused:
        confirm_store(store, home)
    assert str(home / STORE_ID_FILE) in refused.value.cure
    (home / STORE_ID_FILE).unlink()
    confirm_store(store, home)
    store.close()


def test_a_topology_of_a_lost_store_is_named_and_can_be_ended(tmp_path: Path) -> None:
    service, scheduler, store = world(tmp_path / "home")
    submit(service)
    store.close()
    shutil.rmtree(service.config.home / "state")
    store.open()
    with pytest.raises(StoreReplaced):
        service.inspector.find("words", "ads", "prod")
    service.submissions.kill("words", "ads", "prod")
    nothing_is_left(service, scheduler)
    with pytest.raises(NotFound):
        service.inspector.find("words", "ads", "prod")
    store.close()


def test_a_replacement_can_be_rolled_back(made: World) -> None:
    service, scheduler = made
    submit(service)
    first = service.find_package_digest("words-1")
    wanted, new = fields(replace=True), replace(definition(2), config={"user.limit": 5})
    assert service.describe_replacement(wanted, definition(1)) == [], "a repeated request replaces nothing"
    service.submit(wanted, new, check_definition(new, wanted), package(service, b"raise ValueError\n"))
    with pytest.raises(AlreadyExists):
        service.roll_back("words", "ads", "prod")
    service.submissions.kill("words", "ads", "prod")
    assert service.packages.has(first), "it may be needed again"
    topology_id, reference = service.roll_back("words", "ads", "prod")
    assert (scheduler.running(), reference) == ({topology_id}, "")
    assert topology_id not in ("words-1", "words-2")
    assert service.find_package_digest(topology_id) == first
    assert service.inspector.find("words", "ads", "prod").definition.config == {}
    service.submissions.kill("words", "ads", "prod")
    with pytest.raises(NotFound):
        service.roll_back("words", "ads", "prod")
    nothing_is_left(service, scheduler)


def test_previous_versions_and_their_packages_are_deleted_after_their_time(tmp_path: Path) -> None:
    now = [100.0]
    service, _, store = world(tmp_path / "home", lambda: now[0])
    digests = []
    for serial in (1, 2, 3):
        wanted, code = fields(replace=True), package(service, b"x = %d\n" % serial)
        new = definition(serial)
        service.submit(wanted, new, check_definition(new, wanted), code)
        digests.append(service.find_package_digest(f"words-{serial}"))
    assert [service.packages.has(digest) for digest in digests] == [False, True, True], "one version back is kept"
    now[0] += 3599
    service.forget_expired()
    assert service.packages.has(digests[1])
    now[0] += 1
    service.forget_expired()
    assert [service.packages.has(digest) for digest in digests] == [False, False, True]
    service.submissions.kill("words", "ads", "prod")
    with pytest.raises(NotFound):
        service.roll_back("words", "ads", "prod")
    store.close()


def test_a_store_lost_while_the_api_server_reads_it_removes_nothing(tmp_path: Path) -> None:
    service, scheduler, store = world(tmp_path / "home")
    home = service.config.home
    confirm_store(store, home)
    submit(service)
    store.close()
    shutil.rmtree(home / "state")  # after the check at the start
    store.open()
    with pytest.raises(StoreReplaced) as refused:
        recover(service, RequestLog(home), AuditLog(home / "audit.jsonl"))
    assert str(home / STORE_ID_FILE) in refused.value.cure
    assert scheduler.running() == {"words-1"}
    assert (home / PLACE / "words" / "launch.json").exists()
    store.close()


NODE = paths.api_server("box")
WORDS_PLACE = Path("topologies", "box", "ads", "prod", "words")


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
        launch = Launch.load(self.home / WORDS_PLACE / "launch.json")
        assert launch.topology_id == state.topology_id
        assert (self.home / WORDS_PLACE / "secret").exists()
        assert [p.name for p in (self.home / WORDS_PLACE).parent.iterdir()] == [WORDS_PLACE.name], "nothing is staged"
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
