"""Files store with real processes, signals and damaged files; polls are skipped while nothing is written."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.state import files_database, filesystem, open_store
from heron_runtime.state.files import SETTLED_SECS, SURE_EVERY_SECS, FileChangeDetector, FilesStore, Trace, traces_of
from heron_runtime.state.store import (
    Create,
    Delete,
    NodeExists,
    SessionState,
    Set,
    StateStore,
    StoreError,
    StoreMissing,
    StoreUnavailable,
    store_identity,
)
from tests.support.waiting import wait_until

Run = Callable[..., "subprocess.Popen[str]"]

PRELUDE = """
import os, sys, time
from heron_runtime.state import open_store
from heron_runtime.state.store import *
store = open_store(sys.argv[1], session_timeout_secs=float(sys.argv[2]))
store.open()
def say(text):
    print(text, flush=True)
"""

OWNER = """
store.on_session(lambda state: say(state.value))
store.commit([Create("/tmanagers/" + name, b"", ephemeral=True) for name in "tu"])
say("ready")
sys.stdin.read()
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a folder that does not exist yet."""
    return f"files://{tmp_path}/state"


@pytest.fixture
def store(url: str) -> Iterator[StateStore]:
    """Yield a client in this process."""
    made = open_store(url)
    made.open()
    yield made
    made.close()


@pytest.fixture
def run(url: str) -> Iterator[Run]:
    """Yield a function that starts a program with an open ``store``."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str, session_timeout_secs: float = 6.0) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + program, url, str(session_timeout_secs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    """Return the next line the process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_kill_9_of_an_owner_ends_its_session(store: StateStore, run: Run) -> None:
    owner = run(OWNER, session_timeout_secs=3600.0)  # so only the released lock can end the session
    assert line(owner) == "ready"
    assert store.children("/tmanagers") == ["t", "u"]
    fired: list[str] = []
    store.watch("/tmanagers", fired.append)
    owner.kill()
    wait_until(lambda: fired, "the watch fires")
    assert store.get("/tmanagers/t") is None
    assert store.children("/tmanagers") == []
    store.commit([Create("/tmanagers/t", b"next", ephemeral=True)])


def test_nodes_of_a_killed_owner_are_gone_for_the_next_client(url: str, run: Run, tmp_path: Path) -> None:
    owner, sessions = run(OWNER), tmp_path / "state" / "sessions"
    assert line(owner) == "ready"
    owner.kill()
    owner.wait()
    later = open_store(url)
    later.open()
    assert (later.get("/tmanagers/t"), later.children("/tmanagers")) == (None, [])
    assert later.commit([Create("/tmanagers/t", b"mine", ephemeral=True)]) == [0]
    assert len(list(sessions.iterdir())) == 1, "the dead owner's file is removed"
    later.close()
    assert list(sessions.iterdir()) == []


def test_stopped_owner_keeps_its_nodes_until_its_lease_ends(store: StateStore, run: Run) -> None:
    owner = run(OWNER, session_timeout_secs=1.0)
    assert line(owner) == "ready"
    fired: list[str] = []
    store.watch("/tmanagers/t", fired.append)
    owner.send_signal(signal.SIGSTOP)
    assert store.get("/tmanagers/t") is not None
    wait_until(lambda: store.get("/tmanagers/t") is None, "the lease runs out")
    wait_until(lambda: fired, "the watch fires")
    store.commit([Create("/tmanagers/t", b"taken over", ephemeral=True)])
    owner.send_signal(signal.SIGCONT)
    assert line(owner) == "lost"
    found = store.get("/tmanagers/t")
    assert found is not None
    assert found.data == b"taken over"


def test_resumed_owner_cannot_write_as_owner(store: StateStore, run: Run) -> None:
    """Without another client, the owner's own clock shows that its lease has ended."""
    owner = run(
        """
store.commit([Create("/tmanagers/t", b"", ephemeral=True)])
say("ready")
sys.stdin.readline()
try:
    store.commit([CheckOwner("/tmanagers/t"), Create("/pplans/t", b"")])
except (SessionLost, NoNode) as error:
    say(type(error).__name__)
""",
        session_timeout_secs=1.0,
    )
    assert line(owner) == "ready"
    owner.send_signal(signal.SIGSTOP)
    time.sleep(1.2)  # the fault under test is time that passes
    assert owner.stdin is not None
    owner.stdin.write("\n")
    owner.stdin.flush()
    owner.send_signal(signal.SIGCONT)
    assert line(owner) in ("SessionLost", "NoNode")
    assert store.get("/pplans/t") is None


def test_concurrent_processes_count_correctly(store: StateStore, run: Run) -> None:
    """Compare-and-set from four processes: no increment is lost or repeated."""
    store.commit([Create("/a/counter", b"0")])
    workers = [
        run("""
for _ in range(25):
    while True:
        node = store.get("/a/counter")
        try:
            store.commit([Set("/a/counter", str(int(node.data) + 1).encode(), node.version)])
        except BadVersion:
            continue
        break
say("done")
""")
        for _ in range(4)
    ]
    assert [line(worker) for worker in workers] == ["done"] * 4
    found = store.get("/a/counter")
    assert found is not None
    assert (found.data, found.version) == (b"100", 100)


def test_processes_that_create_a_store_together_all_succeed(url: str, run: Run) -> None:
    workers = [
        run(f"""
store.commit([Create("/a/{number}", b"")])
say("done")
""")
        for number in range(6)
    ]
    assert [line(worker) for worker in workers] == ["done"] * 6
    later = open_store(url)
    later.open()
    assert later.children("/a") == [str(number) for number in range(6)]
    later.close()


def test_crash_within_a_transaction_leaves_all_or_nothing(store: StateStore, run: Run) -> None:
    """Kill a process that commits continuously, repeatedly: both nodes always agree."""
    store.commit([Create("/a/left", b"0" * 9), Create("/b/right", b"0" * 9)])
    last = b""
    for _ in range(6):
        writer = run("""
number = int(store.get("/a/left").data)
say("ready")
while True:
    number += 1
    text = b"%09d" % number
    store.commit([Set("/a/left", text), Set("/b/right", text)])
""")
        assert line(writer) == "ready"
        before = store.get("/a/left")
        wait_until(lambda before=before: store.get("/a/left") != before, "the writer writes")
        writer.kill()
        writer.wait()
        left, right = store.get("/a/left"), store.get("/b/right")
        assert left is not None
        assert left == right
        assert left.data > last
        last = left.data
        store.commit([Set("/a/left", left.data), Set("/b/right", left.data)])  # the lock is free again


def test_readers_never_see_a_partial_transaction(store: StateStore, run: Run) -> None:
    store.commit([Create("/a/one", b"")])
    writer = run("""
say("ready")
flip = True
while True:
    if flip:
        store.commit([Delete("/a/one"), Create("/a/two", b"")])
    else:
        store.commit([Delete("/a/two"), Create("/a/one", b"")])
    flip = not flip
""")
    assert line(writer) == "ready"
    seen = {tuple(store.children("/a")) for _ in range(600)}

    def looked() -> bool:  # on a busy machine the writer may not have run yet
        seen.add(tuple(store.children("/a")))
        return len(seen) > 1

    wait_until(looked, "the writer writes")
    assert seen == {("one",), ("two",)}


def test_wait_for_a_held_lock_is_bounded(tmp_path: Path) -> None:
    store = FilesStore(tmp_path / "state", wait_secs=0.2, poll_interval_secs=0.02)
    store.open()
    states: list[SessionState] = []
    fired: list[str] = []
    store.on_session(states.append)
    store.watch("/a/b", fired.append)
    blocker = sqlite3.connect(tmp_path / "state" / "state.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match=r"has held the store's lock for 0\.2 s"):
        store.commit([Create("/a/b", b"")])
    assert store.get("/a/b") is None  # reads still work
    blocker.execute("ROLLBACK")
    blocker.close()
    store.commit([Create("/a/b", b"")])
    wait_until(lambda: states[-1:] == [SessionState.CONNECTED], "the store is back")
    assert states[0] is SessionState.SUSPENDED
    wait_until(lambda: fired, "the watch fires")
    store.close()


def test_all_files_are_private(store: StateStore, tmp_path: Path) -> None:
    store.commit([Create("/a/b", b"secret", ephemeral=True)])
    for folder, _, files in os.walk(tmp_path / "state"):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        for name in files:
            assert stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) == 0o600


def test_child_processes_inherit_no_files(store: StateStore) -> None:
    """An exec'ed program holds neither the lock file nor the database."""
    store.commit([Create("/a/b", b"", ephemeral=True)])
    listing = "import os; print(*(os.path.realpath(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')))"
    seen = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True, close_fds=False)
    assert "/state/" not in seen.stdout


def test_folder_with_other_files_is_rejected(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o755)
    (folder / "letter.txt").write_text("")
    with pytest.raises(StoreError, match="Choose an empty folder"):
        FilesStore(folder).open()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_damaged_file_is_named_with_a_remedy(tmp_path: Path) -> None:
    store = FilesStore(tmp_path / "state")
    store.open()
    store.close()
    (tmp_path / "state" / "state.db").write_bytes(b"this is no database, " * 1000)
    with pytest.raises(StoreError, match=r"damaged.*move .*away"):
        store.open()


def test_page_damaged_later_is_named(tmp_path: Path) -> None:
    store = FilesStore(tmp_path / "state")
    store.open()
    store.commit([Create(f"/a/{n}", b"x" * 500) for n in range(200)])
    assert store.damage() == []
    store.close()
    database = tmp_path / "state" / "state.db"
    good = database.read_bytes()
    database.write_bytes(good[:8192] + b"\xff" * (len(good) - 8192))

    def use() -> None:
        store.open()
        for number in range(200):
            store.get(f"/a/{number}")

    with pytest.raises(StoreError, match="damaged"):
        use()
    store.close()


def test_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    other = sqlite3.connect(folder / "state.db")
    other.execute("CREATE TABLE letters (text TEXT)")
    other.commit()
    other.close()
    with pytest.raises(StoreError, match="another program"):
        FilesStore(folder).open()


def test_full_disk_changes_nothing_and_is_named(tmp_path: Path) -> None:
    store = FilesStore(tmp_path / "state")
    store.open()
    store.commit([Create("/a/b", b"before")])
    connection = store._tree.writer._connection
    assert connection is not None
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count={pages}")  # SQLite's way to simulate a full disk
    with pytest.raises(StoreError, match=r"disk is full.*nothing was changed"):
        store.commit([Set("/a/b", b"after"), Create("/a/large", b"x" * 100_000)])
    found = store.get("/a/b")
    assert found is not None
    assert found.data == b"before"
    connection.execute("PRAGMA max_page_count=100000")
    store.commit([Create("/a/large", b"x" * 100_000)])
    store.close()


@pytest.mark.parametrize(
    ("number", "text"),
    [(errno.EACCES, "Make it writable"), (errno.EROFS, "read-only file system"), (errno.ENOSPC, "disk is full")],
)
def test_folder_errors_name_cause_and_remedy(number: int, text: str, tmp_path: Path) -> None:
    error = OSError(number, os.strerror(number), str(tmp_path))
    assert text in str(filesystem.explain_os_error(error, tmp_path))


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_folder_that_cannot_be_created_is_named() -> None:
    with pytest.raises(StoreError, match="/proc"):
        FilesStore("/proc/heronry-state").open()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "sealed"
    folder.mkdir(mode=0o500)
    with pytest.raises(StoreError, match="Make it writable"):
        FilesStore(folder / "state").open()


def test_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(StoreError, match="is a file, not a folder"):
        FilesStore(tmp_path / "state").open()


def test_network_file_systems_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "file_system_type", lambda _: 0x6969)
    with pytest.raises(StoreError, match=r"network file system \(NFS\).*HERONRY_HOME"):
        FilesStore(tmp_path / "state").open()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells the type of a file system")
def test_real_file_system_type_is_detected() -> None:
    assert filesystem.file_system_type("/proc") == 0x9FA0


def test_removed_folder_suspends_and_a_new_one_is_another_store(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    store = FilesStore(folder, poll_interval_secs=0.02)
    store.open()
    states: list[SessionState] = []
    store.on_session(states.append)
    store.commit([Create("/a/b", b"", ephemeral=True), Create("/a/c", b"")])
    folder.rename(tmp_path / "away")
    wait_until(lambda: store.session() is SessionState.SUSPENDED, "the store is gone")
    with pytest.raises(StoreUnavailable, match="removed"):
        store.get("/a/b")
    fresh = FilesStore(folder)
    fresh.open()
    wait_until(lambda: SessionState.LOST in states, "the session is not known there")
    assert store.get("/a/c") is None
    assert store.session() is SessionState.CONNECTED
    store.commit([Create("/a/b", b"", ephemeral=True)])
    assert fresh.get("/a/b") is not None
    store.close()
    assert fresh.get("/a/b") is None
    fresh.close()


def test_abandoned_session_files_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    store = FilesStore(folder)
    store.open()
    store.close()
    old, young = folder / "sessions" / "1-old", folder / "sessions" / ".new-2-young"
    for path in (old, young):
        path.write_bytes(b"")
    os.utime(old, (0, 0))
    store.open()
    assert not old.exists()
    assert young.exists()
    store.close()


@pytest.mark.parametrize("url", ["files://relative/x", "files:///", "ftp://x", "nonsense", ""])
def test_invalid_store_urls_are_rejected(url: str) -> None:
    with pytest.raises(StoreError):
        open_store(url)


def test_settings_reach_the_store(tmp_path: Path) -> None:
    store = open_store(f"files://{tmp_path}/st%20ate", **{"heron.state.session.timeout.secs": 2.5, "heron.other": 1})
    assert isinstance(store, FilesStore)
    assert store._session.timeout_secs == 2.5
    store.open()
    assert (tmp_path / "st ate" / "state.db").exists()
    store.close()


def test_node_of_a_live_owner_cannot_be_created_again(store: StateStore, run: Run) -> None:
    owner = run(OWNER)
    assert line(owner) == "ready"
    with pytest.raises(NodeExists):
        store.commit([Create("/tmanagers/t", b"", ephemeral=True)])
    store.commit([Delete("/tmanagers/u"), Set("/tmanagers/t", b"changed")])


def test_a_reader_does_not_create_a_store(url: str, tmp_path: Path) -> None:
    reader = open_store(url, create=False)
    with pytest.raises(StoreMissing, match="does not exist"):
        reader.open()
    assert not (tmp_path / "state").exists()
    writer = open_store(url)
    writer.open()
    writer.commit([Create("/topologies/a", b"one")])
    reader.open()
    assert reader.children("/topologies") == ["a"]
    reader.close()
    writer.close()


def test_a_store_of_an_earlier_release_gets_an_identity(url: str, tmp_path: Path) -> None:
    earlier = open_store(url)
    earlier.open()
    earlier.commit([Create("/topologies/a", b"one")])
    earlier.close()
    connection = sqlite3.connect(tmp_path / "state" / "state.db")
    connection.execute("DROP TABLE identity")
    connection.close()
    first, second = open_store(url), open_store(url)
    first.open()
    second.open()
    assert first.get("/topologies/a") is not None
    assert store_identity(first) == store_identity(second) != ""
    first.close()
    second.close()


OLD = 1_000_000.0  # Unix time in seconds


def trace(written: float, size: int = 1, inode: int = 7) -> Trace:
    return (1, inode, size, int(written * 1e9))


@pytest.mark.parametrize(
    ("written", "read_at", "later", "needed"),
    [
        ([OLD, OLD], OLD + SETTLED_SECS, SURE_EVERY_SECS - 0.01, False),
        ([OLD, OLD], OLD + SETTLED_SECS, SURE_EVERY_SECS, True),  # to be sure
        ([OLD, OLD + 100], OLD + 100 + SETTLED_SECS - 0.01, 0.0, True),  # the rest of that commit may not be readable
        ([OLD + 3600], OLD, 0.0, True),  # a modification time in the future
        ([None, None], OLD, 0.0, True),  # missing files
    ],
)
def test_files_are_read_again_unless_they_have_settled(
    written: list[float | None], read_at: float, later: float, needed: bool
) -> None:
    glance, traces = FileChangeDetector(), tuple(at if at is None else trace(at) for at in written)
    assert glance.needed(10.0, traces), "the first check reads"
    glance.has_read(10.0, read_at, traces)
    assert glance.needed(10.0 + later, traces) == needed
    glance.forget()
    assert glance.needed(10.0, traces), "and so does one after an error"


MOVES = st.lists(st.tuples(st.floats(0.001, 8.0), st.booleans()), max_size=60)


@given(MOVES, st.floats(0.0, SETTLED_SECS - 0.1))
def test_every_commit_is_read(moves: list[tuple[float, bool]], sync: float) -> None:
    """Time passes, and some commits become readable ``sync`` seconds after they are logged (SQLite's delay)."""
    glance, now = FileChangeDetector(), 100.0
    logged, size = now, 0
    readable_at: list[float] = []
    read = 0
    last_glance = now
    for step, commits in moves:
        now += step
        traces = (trace(OLD), trace(OLD + logged, size))
        if glance.needed(now, traces):
            glance.has_read(now, OLD + now, traces)
            read = sum(at <= now for at in readable_at)
        else:  # skipped: nothing was readable that the last read has missed
            assert read == sum(at <= now for at in readable_at)
            assert now - last_glance < SURE_EVERY_SECS + 8.0
        last_glance = now
        if commits:
            logged, size = now, size + 1
            readable_at.append(now + sync)


def test_traces_show_writes_and_replacements(tmp_path: Path) -> None:
    path, missing = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"x")
    os.utime(path, ns=(0, 0))
    paths = (str(path), str(missing))
    first = traces_of(paths)
    assert first[1] is None
    path.write_bytes(b"y")  # same length
    second = traces_of(paths)
    assert second[0] != first[0]
    path.rename(missing)
    assert traces_of(paths) == (None, second[0])


def test_store_created_during_inspection_is_accepted(
    tmp_path: Path,
) -> None:
    """The inspection runs three queries; all tables appear between the first and the second."""
    path = tmp_path / "state.db"
    one, other = (sqlite3.connect(path, isolation_level=None) for _ in range(2))
    looks: list[int] = []

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(one, name)

        def execute(self, statement: str) -> Any:
            found = one.execute(statement)
            if statement == "PRAGMA user_version" and not looks:
                looks.append(1)
                version = found.fetchall()
                files_database._set_up(other, path)
                return SimpleNamespace(fetchone=lambda: version[0])
            return found

    files_database._set_up(Slow(), path)  # type: ignore[arg-type]
    assert looks
    assert files_database._schema_version(one, path) == files_database.SCHEMA_VERSION
    one.close()
    other.close()
