"""``submit --replace`` of a stateful topology on real files and a real store.

After a failure or interrupt at any step the old topology continues, or the new one continues from its end, or the
message explains how to continue. Draining is simulated here; the real one is tested in
``tests/integration/front_door/test_replace.py``.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heron_control.inspection.inspector import Inspector
from heron_control.packing import pack
from heron_control.schedulers.topology_folder import load_launch, place_of
from heron_control.submission import stateful_replacement
from heron_control.submission.named_checkpoints import NamedCheckpoints
from heron_control.submission.service import SubmissionService
from heron_control.submission.stateful_replacement import NotDrained
from heron_control.submission.submission import ClusterConfig, StateHandover, Submission
from heron_runtime.checkpoint_files import CheckpointFolder
from heron_runtime.failures import Failure, Interrupted, InvalidTopology
from heron_runtime.launch import Launch
from heron_runtime.model.checkpoints import CheckpointRecord
from heron_runtime.model.topology import ComponentKind, ComponentSpec, TopologyDefinition, TopologyState
from heron_runtime.state import StoreAddress, open_store, paths, topologies
from heron_runtime.state.store import Create, Set
from heron_runtime.wire import message_codecs
from tests.unit.submission.test_from_checkpoint import KEEPS, checkpoint
from tests.unit.submission.test_submission_service import ScriptedScheduler

NAME = "words"
LABEL = "upgrade-9"


class Interrupting(ScriptedScheduler):
    """Scheduler that runs a scripted action at a step."""

    def __init__(self) -> None:
        super().__init__()
        self.at: dict[str, Callable[[], None]] = {}

    def _at(self, step: str) -> None:
        self.told.append(step)
        if step in self.at:
            self.at[step]()


class World:
    """The old topology runs, and its checkpoint 9 is complete."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.home = home
        address = StoreAddress((home / "state").as_uri().replace("file:", "files:", 1))
        self.store = open_store(address.url)
        self.store.open()
        self.scheduler = Interrupting()
        self.service = SubmissionService(ClusterConfig(home, "local", address, True), self.store, self.scheduler)
        self.named = NamedCheckpoints(home, "local")
        self.notes: list[str] = []
        self.states: list[TopologyState] = []  # as its master was told
        self.drains: Callable[[], int] = lambda: 9
        self.submit(1)
        self.old = CheckpointFolder(self.place / "checkpoints")
        checkpoint(self.old)
        self.complete(9)
        patch.setattr(stateful_replacement, "drain", lambda *_: self.drains())
        patch.setattr(Inspector, "set_state", lambda _, record, state, progress: self.states.append(state))

    @property
    def place(self) -> Path:
        return place_of(self.home, "local", "me", "default", NAME)

    def complete(self, number: int) -> None:
        node = self.store.get(paths.checkpoints(NAME))
        data = message_codecs.CHECKPOINT_RECORD.encode(CheckpointRecord(4, number, number))
        path = paths.checkpoints(NAME)
        self.store.commit([Create(path, data) if node is None else Set(path, data)])

    def submit(self, serial: int, component: str = "words", config: dict[str, Any] = KEEPS, **more: Any) -> None:
        spout = ComponentSpec(component, ComponentKind.SPOUT, "m:Word", 2)
        definition = TopologyDefinition(NAME, f"{NAME}-{serial}", (spout,), config)
        package = self.home / "package"
        package.mkdir(exist_ok=True)
        wanted = Submission(
            definition, pack(definition), package, "me", "default", "me", handover=StateHandover(**more)
        )
        self.service.submit(wanted, replace=serial > 1, note=self.notes.append)

    @property
    def runs(self) -> str:
        """The id of the stored topology, whose folder is in place."""
        try:
            stored = topologies.read_topology(self.store, NAME).execution
        except topologies.NoSuchTopology:
            return ""
        launch = load_launch(self.place)
        assert launch is not None
        assert launch.topology_id == stored.topology_id
        return stored.topology_id

    @property
    def labels(self) -> list[str]:
        return [row["name"] for row in self.named.rows("me", "default", NAME)]

    def check_old_goes_on(self, *, drained: bool) -> None:
        assert self.runs == "words-1"
        assert self.labels == []
        assert self.scheduler.told == ["start words-1"]
        assert self.states == ([TopologyState.RUNNING] if drained else [])
        assert not list(self.place.parent.glob(".*")), "something was left prepared"
        assert self.old.manifests() == [9]

    def check_new_goes_on(self) -> Launch:
        assert self.runs == "words-2"
        assert self.labels == [LABEL]
        assert self.scheduler.told == ["start words-1", "kill words-1", "start words-2"]
        launch = load_launch(self.place)
        assert launch is not None
        assert (launch.start_checkpoint, launch.start_generation) == (9, 4)
        assert CheckpointFolder(self.place / "checkpoints").manifests() == [9]
        return launch


def in_world(scenario: Callable[[World], None]) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", name)
        home = Path(name, "home")
        home.mkdir()
        world = World(home, patch)
        try:
            scenario(world)
        finally:
            world.store.close()


def raising(error: BaseException) -> Callable[[], Any]:
    def raises() -> Any:
        raise error

    return raises


def expect(kind: type[BaseException], call: Callable[[], None]) -> Any:
    """Return the exception that the call raises."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def test_new_topology_continues_where_the_old_one_ended() -> None:
    def scenario(world: World) -> None:
        world.submit(2)
        world.check_new_goes_on()
        first, second = world.notes
        assert "words is drained; if this command is killed now, `heron activate local/me/default words`" in first
        assert "--from-checkpoint local/me/default/words@upgrade-9` continues from it" in second

    in_world(scenario)


def test_incompatible_replacement_is_rejected_before_any_step() -> None:
    def scenario(world: World) -> None:
        for serial, more in enumerate(({"component": "others"}, {"config": {}}), 2):
            error = expect(InvalidTopology, lambda serial=serial, more=more: world.submit(serial, **more))
            assert "nothing was changed" in error.message
        storage = {**KEEPS, "topology.stateful.checkpoint.storage": world.old.folder.as_uri()}
        assert (
            "checkpoints of another topology"
            in expect(InvalidTopology, lambda: world.submit(4, config=storage)).message
        )
        world.check_old_goes_on(drained=False)

    in_world(scenario)


def test_failure_before_the_kill_keeps_the_old_topology() -> None:
    def not_drained(world: World) -> None:
        world.drains = raising(NotDrained("task 3 has not committed yet"))
        assert "--without-state" in expect(NotDrained, lambda: world.submit(2)).cure
        world.check_old_goes_on(drained=False)  # draining has resumed it

    def not_copied(world: World) -> None:
        part = max((world.old.folder / "parts").iterdir())

        def damage() -> int:
            part.write_bytes(part.read_bytes()[:-1] + b"?")
            return 9

        world.drains = damage
        expect(Failure, lambda: world.submit(2))
        world.check_old_goes_on(drained=True)

    def behind(world: World) -> None:
        checkpoint_at = world.complete
        with pytest.MonkeyPatch.context() as patch:
            adopt = "heron_control.submission.service.Prepared.adopt"
            patch.setattr(adopt, lambda *_: checkpoint_at(10))
            assert "became complete while 9 was copied" in expect(Failure, lambda: world.submit(2)).message
        world.check_old_goes_on(drained=True)

    def interrupted(world: World) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("heron_control.submission.service.Prepared.adopt", lambda *_: raising(KeyboardInterrupt())())
            expect(KeyboardInterrupt, lambda: world.submit(2))
        world.check_old_goes_on(drained=True)

    for scenario in (not_drained, not_copied, behind, interrupted):
        in_world(scenario)


def test_ctrl_c_after_the_kill_waits_for_the_new_topology() -> None:
    for step in ("kill words-1", "start words-2"):

        def scenario(world: World, step: str = step) -> None:
            world.scheduler.at[step] = lambda: os.kill(os.getpid(), signal.SIGINT)
            error = expect(Failure, lambda: world.submit(2))
            assert isinstance(error, Interrupted)
            assert "words is replaced, and continues to start" in error.message
            world.check_new_goes_on()

        in_world(scenario)


def test_failure_after_the_kill_names_how_to_continue() -> None:
    for step in ("kill words-1", "start words-2"):

        def scenario(world: World, step: str = step) -> None:
            world.scheduler.at[step] = raising(Failure("no process can be started"))
            error = expect(Failure, lambda: world.submit(2))
            assert "words has ended" in error.message
            assert "no process can be started" in error.message
            assert "--from-checkpoint local/me/default/words@upgrade-9" in error.cure
            assert world.labels == [LABEL]

        in_world(scenario)
