"""Quota of a cluster: sums of granted resources, and messages for exceeded limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_control.packing import pack
from heron_control.progress import silent
from heron_control.schedulers import grants
from heron_control.schedulers.grants import Amount, Granted, Quota, QuotaSpent, all_granted, amount_of, read_granted
from heron_control.schedulers.topology_folder import Homes
from heron_control.submission.service import SubmissionService
from heron_control.submission.submission import ClusterConfig, Submission
from heron_runtime.files import entries
from heron_runtime.model.containers import DEFAULT_BYTES
from heron_runtime.model.settings import MiB
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.state import StoreAddress, open_store
from tests.unit.submission.test_submission_service import SPOUT, ScriptedScheduler

WORDS = TopologyDefinition("words", "words-1", (SPOUT,))
ONE = amount_of(Granted(WORDS, pack(WORDS)))
_amounts = st.builds(Amount, st.integers(0, 9).map(float), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
_bounds = st.none() | st.integers(0, 30)
_quotas = st.builds(Quota, _bounds, _bounds, _bounds, _bounds)


def test_amount_of_a_plan_includes_the_master_container() -> None:
    assert ONE.containers == 2
    assert ONE.cores > 0
    assert ONE.ram_bytes > 0
    assert ONE.disk_bytes == DEFAULT_BYTES


def test_standbys_count_like_a_master() -> None:
    config = {"topology.master.replicas": 3}
    more = amount_of(Granted(TopologyDefinition("words", "words-1", (SPOUT,), config), pack(WORDS)))
    assert more == ONE + Amount(1.0, 512 * MiB, 2)


@given(_quotas, st.lists(_amounts, max_size=4), _amounts)
def test_granted_total_stays_within_every_bound(quota: Quota, granted: list[Amount], wanted: Amount) -> None:
    total = sum(granted, wanted)
    bounds = (
        (quota.cores, total.cores), (quota.ram_bytes, total.ram_bytes), (quota.containers, total.containers),
        (quota.disk_bytes, total.disk_bytes),
    )  # fmt: skip
    fits = all(most is None or has <= most for most, has in bounds)
    try:
        quota.check(granted, wanted)
    except QuotaSpent:
        assert not fits
    else:
        assert fits


@pytest.mark.parametrize(
    ("quota", "what"),
    [
        (Quota(cores=1.5 * ONE.cores), "cores"),
        (Quota(ram_bytes=ONE.ram_bytes + MiB), "MiB of memory"),
        (Quota(containers=3), "containers"),
        (Quota(disk_bytes=2 * ONE.disk_bytes - 1), "MiB of disk"),
    ],
)
def test_quota_error_names_the_spent_resource(quota: Quota, what: str) -> None:
    with pytest.raises(QuotaSpent, match=f"{what} in total: .* are in use, and this topology requests"):
        quota.check([ONE], ONE)


class Cluster:
    """Service with a quota and any number of submissions."""

    def __init__(self, home: Path, quota: Quota) -> None:
        self.home = home
        home.mkdir()
        address = StoreAddress((home / "state").as_uri().replace("file:", "files:", 1))
        self.store = open_store(address.url)
        self.store.open()
        self.config = ClusterConfig(home, "local", address, quota=quota)
        self.service = SubmissionService(self.config, self.store, ScriptedScheduler())

    def submit(
        self, name: str, serial: int = 1, *, replace: bool = False, told: Callable[[str], None] = silent
    ) -> bool:
        """Submit a topology; return False if the quota is spent."""
        package = self.home / f"staged-{name}-{serial}"
        package.mkdir()
        definition = TopologyDefinition(name, f"{name}-{serial}", (SPOUT,))
        wanted = Submission(definition, pack(definition), package, "ada", "default", "ada")
        try:
            self.service.submit(wanted, told, replace=replace)
        except QuotaSpent:
            return False
        return True


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return Cluster(tmp_path / "home", Quota(containers=4))


def test_killed_and_rejected_topologies_release_their_quota(cluster: Cluster) -> None:
    assert cluster.submit("a")
    assert cluster.submit("b")
    assert not cluster.submit("c")
    assert cluster.submit("b", 2, replace=True), "what is replaced makes room"
    cluster.service.kill("a", "ada", "default")
    assert cluster.submit("c", 2)
    place = cluster.home / "topologies/local/ada/default/c"
    granted = read_granted(place)
    assert granted is not None
    assert granted.definition.id == "c-2"
    assert (place / "packing-plan.granted").stat().st_mode & 0o777 == 0o400
    cluster.store.close()


def test_concurrent_submits_share_the_remaining_quota(cluster: Cluster) -> None:
    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(cluster.submit, "abcdef"))
    assert sum(done) == 2
    total = sum(all_granted(cluster.config.homes, Path()), Amount())
    assert total.containers == 4
    cluster.store.close()
    cluster.store.close()


def test_folder_cannot_take_its_place_while_grants_are_summed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum lists names before it reads grants, so a folder renamed in between would be missed."""
    folder, both, same = cluster.home / "topologies/local/ada/default", threading.Barrier(2, timeout=60), []

    def slowly(homes: Homes, apart_from: Path) -> list[Amount]:
        if apart_from.name == "b":
            names = entries(folder)
            both.wait()  # "a" is prepared and takes its place unless blocked
            time.sleep(0.2)
            same.append(entries(folder) == names)
        return list(all_granted(homes, apart_from))

    prepared = threading.Event()

    def told(what: str) -> None:
        if what == "writing the state":
            prepared.set()
            both.wait()

    monkeypatch.setattr("heron_control.submission.service.all_granted", slowly)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cluster.submit, "a", told=told)
        assert prepared.wait(60)  # it has its grant; before that both would wait for one lock
        assert pool.submit(cluster.submit, "b").result(60)
        assert first.result(60)
    assert same == [True]
    cluster.store.close()


def test_folder_without_a_grant_does_not_count(cluster: Cluster) -> None:
    folder = cluster.home / "topologies/local/ada/default/old"
    folder.mkdir(parents=True)
    (folder / grants.PLAN_FILE).write_bytes(b"\xff")
    assert list(all_granted(cluster.config.homes, Path())) == []
    cluster.store.close()
