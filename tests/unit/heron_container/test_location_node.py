"""Location node of a process: kept across lost sessions and rewritten only by its owner."""

from __future__ import annotations

from heron_control.schedulers.node_registration import NodeRegistration
from heron_runtime.state.memory import MemoryStore, MemoryTree

PATH = "/containers/t-1"


def opened(tree: MemoryTree) -> MemoryStore:
    store = MemoryStore(tree)
    store.open()
    return store


def test_data_may_change_and_the_node_stays_ephemeral() -> None:
    tree = MemoryTree()
    mine, other = opened(tree), opened(tree)
    presence = NodeRegistration(mine, PATH, b"no port yet")
    assert presence.keep() == b"no port yet"
    presence.data = b"port 4711"
    assert presence.keep() == b"port 4711"
    node = other.get(PATH)
    assert node is not None
    assert (node.data, node.ephemeral) == (b"port 4711", True)
    version = node.version
    assert presence.keep() == b"port 4711"
    again = other.get(PATH)
    assert again is not None
    assert again.version == version, "nothing is written when nothing has changed"
    mine.close()
    assert other.get(PATH) is None


def test_node_of_another_process_is_left_alone() -> None:
    tree = MemoryTree()
    presence, rival = NodeRegistration(opened(tree), PATH, b"first"), NodeRegistration(opened(tree), PATH, b"second")
    presence.keep()
    assert rival.keep() == b"first"
    rival.data = b"second, changed"
    assert rival.keep() == b"first"
    presence.data = b"first, changed"
    assert presence.keep() == rival.keep() == b"first, changed"


def test_node_of_an_earlier_own_session_is_not_written() -> None:
    tree = MemoryTree()
    earlier, later = opened(tree), opened(tree)
    NodeRegistration(earlier, PATH, b"same process").keep()
    presence = NodeRegistration(later, PATH, b"same process")
    assert presence.keep() == b"same process"
    presence.data = b"with a port"
    assert presence.keep() == b""
    earlier.close()
    assert presence.keep() == b"with a port"


def test_withdraw_deletes_only_the_own_node() -> None:
    tree = MemoryTree()
    mine, other = opened(tree), opened(tree)
    first = NodeRegistration(mine, PATH, b"first")
    first.withdraw()
    first.keep()
    NodeRegistration(other, PATH, b"second").withdraw()
    NodeRegistration(other, PATH, b"first").withdraw()  # equal data, another session
    node = other.get(PATH)
    assert node is not None
    assert node.data == b"first"
    first.withdraw()
    first.withdraw()
    assert other.get(PATH) is None
    assert NodeRegistration(mine, PATH, b"second").keep() == b"second"
