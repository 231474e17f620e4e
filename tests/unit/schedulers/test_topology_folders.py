"""Topology folders: a forged record in the store cannot lead a service to another folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from heron_control.inspection.inspector import Inspector, LogReader, asker_of
from heron_control.inspection.process_requests import identity_of_record
from heron_control.schedulers.topology_folder import Homes, make_folder, place_of, write_secrets
from heron_runtime.failures import Failure, NotAllowed
from heron_runtime.launch import Launch
from heron_runtime.state import open_store, topologies
from heron_runtime.state.store import StateStore, StoreError
from tests.support.stub_processes import NAME, definition, execution, packing


@pytest.fixture
def store() -> StateStore:
    made = open_store("memory://")
    made.open()
    return made


def a_home(root: Path, name: str, role: str = "me") -> Path:
    """Create the folder of a topology with its key and a log."""
    place = place_of(root, "local", role, "default", name)
    make_folder(place)
    write_secrets(place)
    (place / "log-files").mkdir()
    (place / "log-files" / "a.log").write_text(f"of {name}\n")
    return place


def test_record_with_a_foreign_home_exposes_nothing(store: StateStore, tmp_path: Path) -> None:
    """A topology that writes another's folder into its record gets neither its key nor its logs."""
    victim, own = a_home(tmp_path, "victim"), a_home(tmp_path, NAME)
    topologies.submit(store, definition(), packing(), execution(str(victim)))
    record = Inspector(store, Homes(tmp_path, "local")).find(NAME, "me", "default")
    assert record.execution.home == str(own)
    assert identity_of_record(record).key in (own / "key.pem").read_bytes()
    assert LogReader(record).read(1, "a.log", 0, 100).data == f"of {NAME}\n".encode()


@pytest.mark.parametrize(
    "forged", [{"role": "../../../etc"}, {"environ": "a/b"}, {"role": ""}, {"environ": ".."}, {"role": "/"}]
)
def test_invalid_role_and_environ_are_rejected_as_forged(forged: dict[str, str], tmp_path: Path) -> None:
    state = replace(execution("/"), **forged)
    with pytest.raises(NotAllowed, match="forged"):
        Homes(tmp_path, "local").of(state)


def test_record_under_a_foreign_name_is_rejected(store: StateStore, tmp_path: Path) -> None:
    a_home(tmp_path, "victim")
    state = replace(execution("/"), topology="victim")
    forged = replace(definition("thief"), id=state.topology_id)
    topologies.submit(store, forged, packing("thief"), state)
    with pytest.raises(StoreError, match="forged"):
        topologies.read_topology(store, "thief")
    assert topologies.list_topologies(store) == ()


def test_topology_without_a_folder_is_not_contacted(store: StateStore, tmp_path: Path) -> None:
    victim = a_home(tmp_path, "victim")
    topologies.submit(store, definition(), packing(), execution(str(victim)))
    record = Inspector(store, Homes(tmp_path, "local")).find(NAME, "me", "default")
    with pytest.raises(Failure, match="No such file"):
        asker_of(record)


def test_other_homes_of_the_user_are_found_only_by_commands(tmp_path: Path) -> None:
    place = a_home(tmp_path / "one", NAME)
    state = execution(str(place))
    launch = Launch("local", "me", "default", NAME, state.topology_id, "", str(place), "/run")
    launch.save(place / "launch.json")
    assert Homes(tmp_path / "two", "local", shared=True).of(state) == place
    assert Homes(tmp_path / "two", "local").of(state) == place_of(tmp_path / "two", "local", "me", "default", NAME)
    other = replace(state, topology_id="words-other")
    assert Homes(tmp_path / "two", "local", shared=True).of(other) != place
