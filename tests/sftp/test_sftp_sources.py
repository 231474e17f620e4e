"""Programs that read files from a real SFTP server: contents, authentication, and exactly-once across faults."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from heronry.connect.settings import ConnectError
from heronry.streamlet import files
from heronry.streamlet.decoding import read_all
from heronry.streamlet.reading import list_files
from heronry.streamlet.results import finished, latest, read
from heronry.streamlet.trees import tree_of
from tests.support.heron_command import HeronCommand, heron_command, unique
from tests.support.servers.sftp import SftpServer
from tests.support.waiting import wait_until

PROGRAM = Path(__file__).with_name("url_program.py")
SECRET = "hush-hush-hush"


@pytest.fixture
def heron(tmp_path: Path) -> Iterator[HeronCommand]:
    """Yield a command with its own home; no topology process may be left at the end."""
    with heron_command(tmp_path / "door") as made:
        yield made


@pytest.fixture
def options(server: SftpServer) -> Path:
    """Return the server's client options with an additional secret."""
    file = server.folder / "options-secret.json"
    file.write_text(json.dumps({**json.loads(server.options.read_text()), "passphrase": SECRET}))
    file.chmod(0o600)
    return file


def test_files_equal_those_on_the_servers_disk(server: SftpServer, options: Path) -> None:
    pytest.importorskip("pyarrow")
    folder = server.kept / "files %41 ü"
    for name, data in {
        "day=1/a.csv": b"n,m\n1,2\n", "day=2/b.csv.gz": gzip.compress(b"n,m\n3,4\n"), "day=2/.part": b"x",
        "_gone/c": b"x", "day=3/empty.csv": b"",
        "day=3/big.csv": b"n,m\n" + b"".join(b"%d,%d\n" % (n, n) for n in range(100_000)),
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "day=1" / "link.csv").symlink_to(folder / "day=1" / "a.csv")
    here = files(folder, "csv", partitions=["day"], schema={"n": "int", "m": "int"})
    there = files(f"{server.url}/{folder.name}", "csv", partitions=["day"], schema=dict(here.schema), options=options)
    assert list_files(there) == list_files(here)
    assert list(read_all(there)) == list(read_all(here))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("heronry-", "fsspec"))]
    wait_until(lambda: not connections(server), "what was opened is closed")


def connections(server: SftpServer) -> int:
    """Return the number of client sessions of the server."""
    assert server.process is not None
    return len(psutil.Process(server.process.pid).children())


def test_unknown_host_key_and_wrong_client_key_are_rejected(server: SftpServer, tmp_path: Path) -> None:
    def told(text: dict[str, object]) -> str:
        file = tmp_path / "options.json"
        file.write_text(json.dumps(text))
        with pytest.raises(ConnectError) as caught:
            list_files(files(server.url, "text", options=file))
        return str(caught.value)

    good = json.loads(server.options.read_text())
    stranger = json.loads(server.options_with("stranger").read_text())
    assert "is at a host with an unknown key" in told(stranger)
    assert "known_hosts" in told(stranger)
    assert "cannot be opened: a file that its options name" in told({**good, "known_hosts": str(tmp_path / "none")})
    refused = told({**good, "client_keys": [str(server.folder / "stranger")], "agent_path": None})
    assert "is not readable" in refused
    assert "client_keys" in refused


def test_silent_server_is_reported_as_unavailable(server: SftpServer, tmp_path: Path) -> None:
    good = json.loads(server.options.read_text())
    (tmp_path / "options.json").write_text(json.dumps({**good, "keepalive_interval": 1, "keepalive_count_max": 2}))
    assert server.process is not None
    with closing(tree_of(files(server.url, "text", options=tmp_path / "options.json"))) as tree:
        assert tree.listed() is not None
        sessions = psutil.Process(server.process.pid).children(recursive=True)
        for session in sessions:
            session.suspend()
        try:
            with pytest.raises(ConnectError, match="cannot be read"):
                tree.listed()
        finally:
            for session in sessions:
                session.resume()


def kill_task(heron: HeronCommand, name: str, component: str) -> None:
    """Kill a task. If the status still names a process that an earlier kill has ended, ask again."""

    def killed() -> bool:
        victim = next(p for p in heron.status(name)["processes"] if p["component"] == component)
        if not victim["pid"]:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim["pid"], signal.SIGKILL)
            return True
        return False

    wait_until(killed, f"a process of {component} runs")


def test_each_line_counts_once_when_tasks_and_the_server_die(
    server: SftpServer, options: Path, heron: HeronCommand, tmp_path: Path
) -> None:
    name, folder, out = unique("far"), server.kept / "grows", tmp_path / "out"
    folder.mkdir()
    written = 0

    def write_more() -> None:
        nonlocal written
        for part in range(3):
            with (folder / f"part-{part}").open("a") as file:
                file.writelines(f"{number}\n" for number in range(written, written + 40_000))
            written += 40_000
        new = b"".join(b"%d\n" % number for number in range(written, written + 10_000))
        (folder / ".new").write_bytes(gzip.compress(new))
        (folder / ".new").rename(folder / f"whole-{written}.gz")
        written += 10_000

    def is_exact() -> bool:
        found = dict(latest(read(out)))
        assert all(n <= written // 1000 for n in found.values()), "something counts twice"
        return found == dict.fromkeys(range(1000), written // 1000)

    write_more()
    heron.submit(name, PROGRAM, "counted", "--", f"{server.url}/grows", str(options), str(out), "grows")
    for component in ("lines", "last_three", "lines"):
        kill_task(heron, name, component)
        write_more()
        wait_until(is_exact, f"everything is counted after the death of {component}")
    server.kill()
    write_more()
    server.start()
    wait_until(is_exact, "everything is counted after the death of the server")
    shown = heron.run(
        "submit", "local", str(PROGRAM), "counted", "--dry-run", "--", server.url, str(options), "x"
    ).stdout
    assert SECRET not in shown
    for file in (tmp_path / "door").rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file
    heron.kill(name)


def test_bounded_source_is_read_once_when_its_task_dies(
    server: SftpServer, options: Path, heron: HeronCommand, tmp_path: Path
) -> None:
    name, out = unique("ends"), tmp_path / "out"
    for part in range(4):
        place = server.kept / "ends" / f"{part}.txt"
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(b"".join(b"%d\n" % number for number in range(250_000 * part, 250_000 * (part + 1))))
    heron.submit(name, PROGRAM, "counted", "--", f"{server.url}/ends", str(options), str(out))
    # The listing is in a checkpoint; a task that dies before it lists again and would then find more files.
    wait_until(lambda: list(out.glob("[!.]*")), "a checkpoint is complete")
    (server.kept / "ends" / "later.txt").write_text("999\n")  # not part of it
    for _ in range(3):
        kill_task(heron, name, "lines")
        seen = len(list(out.glob("[!.]*")))
        wait_until(lambda: finished(out) or len(list(out.glob("[!.]*"))) > seen, "it goes on")  # noqa: B023  # called at once
    wait_until(lambda: finished(out), "the counts are final")
    assert dict(latest(read(out))) == dict.fromkeys(range(1000), 1000)
    heron.kill(name)
