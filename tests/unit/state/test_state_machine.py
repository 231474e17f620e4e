"""Random transactions on every store, compared with a dict model."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from heron_runtime.state.files import FilesStore
from heron_runtime.state.memory import MemoryStore, MemoryTree
from heron_runtime.state.store import (
    BadVersion,
    Check,
    CheckOwner,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    Set,
    StateStore,
)

NODES = ("/a/x", "/a/y", "/b/x", "/c/f/x", "/c/f/y")
PATHS = st.sampled_from(NODES)
VERSIONS = st.none() | st.integers(0, 2)
VALUES = st.binary(max_size=3)
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, VALUES, st.booleans()),
    st.builds(Set, PATHS, VALUES, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
    st.builds(CheckOwner, PATHS),
)
Model = dict[str, tuple[bytes, int, int | None]]  # bytes, version, owner


def apply(model: Model, operations: list[Operation], client: int) -> tuple[Model, list[int]] | tuple[type, int]:
    """Return the model after the transaction, or (error, index), computed independently of the store's core."""
    after = dict(model)
    versions = []
    for index, operation in enumerate(operations):
        here = after.get(operation.path)
        if isinstance(operation, Create):
            if here:
                return NodeExists, index
            after[operation.path] = (operation.data, 0, client if operation.ephemeral else None)
        elif here is None:
            return NoNode, index
        else:
            _, version, owner = here
            expected = None if isinstance(operation, CheckOwner) else operation.version
            if expected not in (None, version) or (isinstance(operation, CheckOwner) and owner != client):
                return BadVersion, index
            if isinstance(operation, Set):
                after[operation.path] = (operation.data, version + 1, owner)
            elif isinstance(operation, Delete):
                del after[operation.path]
        versions.append(after[operation.path][1] if operation.path in after else -1)
    return after, versions


class StoreMachine(RuleBasedStateMachine):
    """Three clients that transact, close and reconnect."""

    make: Any = None

    stores: list[StateStore]

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.tree = MemoryTree()
        self.model: Model = {}
        self.stores = [self.connect() for _ in range(3)]
        self.numbers = [0, 1, 2]

    def connect(self) -> StateStore:
        store: StateStore = self.make()
        store.open()
        return store

    @rule(client=st.integers(0, 2), operations=st.lists(OPERATIONS, max_size=4))
    def transact(self, client: int, operations: list[Operation]) -> None:
        expected = apply(self.model, operations, self.numbers[client])
        if isinstance(expected[0], type):
            with pytest.raises(expected[0]) as caught:
                self.stores[client].commit(operations)
            assert (caught.value.index, caught.value.path) == (expected[1], operations[expected[1]].path)
        else:
            assert self.stores[client].commit(operations) == expected[1]
            self.model = expected[0]

    @rule(client=st.integers(0, 2))
    def reconnect(self, client: int) -> None:
        self.stores[client].close()
        gone = self.numbers[client]
        self.model = {path: node for path, node in self.model.items() if node[2] != gone}
        self.numbers[client] = max(self.numbers) + 1
        self.stores[client] = self.connect()

    @invariant()
    def everybody_sees_the_model(self) -> None:
        for store in self.stores:
            for folder in ("/a", "/b", "/c/f"):
                names = store.children(folder)
                assert names == sorted(p[len(folder) + 1 :] for p in self.model if p.startswith(folder + "/"))
            nodes = store.get_all(NODES)
            assert nodes == [store.get(path) for path in NODES]
            for path, node in zip(NODES, nodes, strict=True):
                seen = None if node is None else (node.data, node.version, node.ephemeral)
                here = self.model.get(path)
                assert seen == (None if here is None else (here[0], here[1], here[2] is not None))

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            for store in self.stores:
                store.close()
            shutil.rmtree(self.folder)


MAKERS = {
    "memory": lambda machine: MemoryStore(machine.tree),
    "files": lambda machine: FilesStore(machine.folder / "state"),
}


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_store_agrees_with_the_model(name: str) -> None:
    machine = type(f"{name}Machine", (StoreMachine,), {"make": MAKERS[name]})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60 if name == "memory" else 25,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
