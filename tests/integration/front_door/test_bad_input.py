"""Errors of the ``heron`` command for invalid input: each has its own message and exit code, and leaves no files.

A port in use cannot occur on the ``local`` cluster: every server binds port 0 and publishes the port it got. A test
here checks that no setting names a port.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import stat
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heron_runtime.model.settings import ALL_SETTINGS
from tests.support.heron_command import Done, HeronCommand, heron_command, titles, unique
from tests.support.waiting import wait_until

GOOD = """
from heronry import BasicBolt, Grouping, Spout, Topology

class Numbers(Spout):
    outputs = ["number"]
    def initialize(self, config, context):
        {initialize}
    def next_tuple(self):
        pass

class Sink(BasicBolt):
    outputs = ["number"]
    def process(self, tup):
        pass

class Count(Topology):
    numbers = Numbers.spec()
    sink = Sink.spec(inputs={{{source}: Grouping.SHUFFLE}})
    {more}
"""


def program(folder: Path, more: str = "", source: str = "numbers", initialize: str = "pass") -> Path:
    """Write a file of user code."""
    file = folder / "counting.py"
    file.write_text(GOOD.format(more=more, source=source, initialize=initialize))
    return file


Refused = Callable[..., Done]


@pytest.fixture
def refused(heron: HeronCommand) -> Iterator[Refused]:
    """Yield a function that submits a topology, expects an exit code and checks that nothing is left of it."""

    def submit(*arguments: object, code: int) -> Done:
        done = heron.run("submit", "local", *map(str, arguments), code=code)
        assert done.stdout == ""
        assert "heron: " in done.stderr
        heron.untouched()
        return done

    yield submit
    assert heron.json("list", "local") == []


@pytest.mark.core
def test_submit_rejects_missing_and_broken_files(refused: Refused, tmp_path: Path) -> None:
    assert "nowhere.py does not exist" in refused(tmp_path / "nowhere.py", code=3).stderr
    broken = tmp_path / "broken.py"
    broken.write_text("import os\nclass Count(\n")
    said = refused(broken, code=7).stderr
    assert "SyntaxError" in said
    assert "broken.py" in said
    assert "line 2" in said
    broken.write_text("def load():\n    raise OSError('no such database')\n\nprint('loading')\nload()\n")
    said = refused(broken, code=7).stderr
    assert "OSError: no such database" in said
    assert "in load" in said
    assert "loading" in said
    assert "heronry/api" not in said, "the traceback shows the user's frames alone"
    broken.write_text("import sys\nsys.exit(9)\n")
    assert "broken.py" in refused(broken, code=7).stderr


@pytest.mark.core
def test_submit_with_a_wrong_class_lists_the_alternatives(refused: Refused, tmp_path: Path) -> None:
    file = program(tmp_path)
    assert "did you mean 'Count'" in refused(file, "Cuont", code=3).stderr
    assert "it holds 'Count'" in refused(file, "Unlike", code=3).stderr
    assert "'Sink' in counting.py is a BasicBolt, not a topology" in refused(file, "Sink", code=3).stderr
    file.write_text("x = 1\n")
    assert "holds no topology" in refused(file, code=3).stderr


@pytest.mark.core
def test_unknown_clusters_and_invalid_names_are_rejected(heron: HeronCommand, refused: Refused, tmp_path: Path) -> None:
    file = program(tmp_path)
    assert "did you mean 'local'" in heron.run("submit", "lcoal", str(file), code=3).stderr
    assert "too many parts" in heron.run("submit", "local/a/b/c", str(file), code=2).stderr
    assert "invalid topology name" in refused("--name", "x" * 5_000, file, code=2).stderr
    assert "invalid topology name" in refused("--name", "../up", file, code=2).stderr
    said = refused(program(tmp_path, more=f"name = {'x' * 300!r}"), code=7).stderr
    assert "128" in said
    assert len(said) < 2_000
    assert "unknown topology 'Count'" in heron.run("status", "local", "Count", code=3).stderr
    assert "unknown topology 'Count'" in heron.run("kill", "local", "Count", code=3).stderr
    assert heron.run("frobnicate", code=2).stdout == ""


@pytest.mark.core
def test_invalid_topologies_and_settings_are_rejected(refused: Refused, tmp_path: Path) -> None:
    said = refused(program(tmp_path, source="'last'", more="last = Sink.spec(inputs={sink: Grouping.SHUFFLE})"), code=7)
    assert "cycle" in said.stderr
    assert "sink" in said.stderr
    file = program(tmp_path, more="config = {'topology.max.spout.pendin': 5}")
    assert "the nearest is 'topology.max.spout.pending'" in refused(file, code=7).stderr
    file = program(tmp_path)
    for given, told in (
        ("topology.max.spout.pending", "KEY=VALUE"),
        ("topology.max.spout.pendin=5", "the nearest is 'topology.max.spout.pending'"),
        ("topology.max.spout.pending=many", "topology.max.spout.pending"),
        ("topology.max.spout.pending=0", "topology.max.spout.pending"),
        ("topology.stateful.checkpoint.storage=/tmp", "file:///path"),
    ):
        assert told in refused("--config-property", given, file, code=2).stderr


def test_oversized_and_endless_input_is_rejected(refused: Refused, heron: HeronCommand, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    assert "is neither a file nor a folder" in refused(pipe, code=7).stderr
    large = refused(program(tmp_path, more='config = {"user.x": "x" * (50 << 20)}'), code=7)
    assert "Keep large data out of the topology's configuration" in large.stderr
    tasks = refused(program(tmp_path, more="sink = Sink.spec(par=60_000, inputs=[numbers])"), code=7)
    assert "60001 tasks need at least 468.76 GiB of memory" in tasks.stderr
    for size in ("10" * 15, "9" * 400 + "MB", "1e400", "nan"):
        said = refused(program(tmp_path), "--config-property", f"topology.container.ram={size}", code=2).stderr
        assert "internal error" not in said
        assert len(said) < 2000
    for digits in (30, 5000):
        config = f"config = {{'topology.container.ram': 10**{digits}}}"
        assert "too large" in refused(program(tmp_path, more=config), code=7).stderr
    heron.home.joinpath("config.yaml").write_text("local:\n  user.x: " + "x" * (50 << 20) + "\n")
    assert "config.yaml: more than 1048576 characters" in refused(program(tmp_path), code=1).stderr
    heron.home.joinpath("config.yaml").unlink()


def test_output_of_user_code_is_bounded_and_escaped(refused: Refused, tmp_path: Path) -> None:
    file = tmp_path / "speaking.py"
    file.write_text("print('heron: fake line')\nraise ValueError('x' * 10**7 + '\\r\\nheron: fake line\\x1b[2J')\n")
    long = refused(file, code=7).stderr
    assert len(long) < 40_000
    file.write_text("print('heron: fake line')\nraise ValueError('bad\\r\\nheron: fake line\\x1b[2J')\n")
    short = refused(file, code=7).stderr
    assert r"raised ValueError: bad\r\nheron: fake line\x1b[2J" in short
    for said in (long, short):
        assert "\x1b" not in said
        assert "\r" not in said
        assert [line[:23] for line in said.splitlines() if line.startswith("heron: ")] == ["heron: speaking.py rais"]


def test_spouts_that_can_never_emit_warn_and_fail_if_strict(
    refused: Refused, heron: HeronCommand, tmp_path: Path
) -> None:
    file = program(tmp_path, initialize="pass\n    def fail(self, tup_id):\n        pass")
    words = ("spout 'numbers' defines fail", '"topology.reliability.mode": "ATLEAST_ONCE"')
    said = refused(file, "--strict", code=7).stderr
    assert all(word in said for word in words)
    said = heron.run("submit", "local", str(file), "--dry-run").stderr
    assert all(word in said for word in words)
    assert "warning: " in said
    for mode in ("ATMOST_ONCE", "ATLEAST_ONCE"):
        given = ("--strict", "--dry-run", "--config-property", f"topology.reliability.mode={mode}")
        assert "warning" not in heron.run("submit", "local", str(file), *given).stderr


def test_unsafe_sinks_warn_and_fail_if_strict(refused: Refused, heron: HeronCommand, tmp_path: Path) -> None:
    file = program(tmp_path)
    exact = ("--config-property", "topology.reliability.mode=EFFECTIVELY_ONCE")
    said = refused(file, "--strict", *exact, code=7).stderr
    assert "bolt 'sink': it has no readers and is not a TwoPhaseSink" in said
    assert 'output_effect = "idempotent", or "at_least_once"' in said
    said = heron.run("submit", "local", str(file), "--dry-run", *exact).stderr
    assert "warning: bolt 'sink': it has no readers" in said
    text = file.read_text()
    for effect, told in (("idempotent", False), ("at_least_once", True)):
        file.write_text(
            text.replace("class Sink(BasicBolt):", f"class Sink(BasicBolt):\n    output_effect = {effect!r}")
        )
        said = heron.run("submit", "local", str(file), "--strict", "--dry-run", *exact).stderr
        assert "warning" not in said
        assert ("note: sink: output may be repeated after a fault" in said) is told


def test_no_setting_names_a_port() -> None:
    """A setting that names a port would need its own error for a port in use, tested here."""
    assert [name for name in ALL_SETTINGS if "port" in name.split(".")] == []


def evil_archives(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield archives that try to write outside their folder, with the expected message."""
    names = {
        "../evil.py": "leads out of the package",
        "/tmp/evil.py": "not a relative path",
        "a\\..\\evil.py": "not a relative path",
    }
    for number, (name, told) in enumerate(names.items()):
        file = folder / f"evil{number}.zip"
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("flight.py", "")
            archive.writestr(name, "evil")
        yield file, told
    file = folder / "link.zip"
    with zipfile.ZipFile(file, "w") as archive:
        link = zipfile.ZipInfo("flight.py")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    yield file, "link"
    file = folder / "link.tar.gz"
    with tarfile.open(file, "w:gz") as tar:
        entry = tarfile.TarInfo("out")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/"
        tar.addfile(entry)
        entry = tarfile.TarInfo("out/evil.py")
        entry.size = 4
        tar.addfile(entry, io.BytesIO(b"evil"))
    yield file, "link"
    file = folder / "broken.tar.gz"
    file.write_bytes(b"\x1f\x8b\x08 this is no archive")
    yield file, "broken.tar.gz"


@pytest.mark.core
def test_malicious_and_broken_archives_are_rejected(refused: Refused, tmp_path: Path) -> None:
    for file, told in evil_archives(tmp_path):
        assert told in refused(file, "flight:Flight", code=7).stderr
    assert not (tmp_path.parent / "evil.py").exists()
    assert not Path("/tmp/evil.py").exists()


def test_unavailable_requirements_are_rejected(refused: Refused, tmp_path: Path) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    program(folder)
    (folder / "requirements.txt").write_text("./not-there-1.0-py3-none-any.whl\n")
    assert "not-there-1.0" in refused(folder, "counting:Count", code=7).stderr


def test_exception_in_initialize_fails_the_submit(heron: HeronCommand, tmp_path: Path) -> None:
    name = unique("Raising")
    file = program(tmp_path, initialize="raise RuntimeError('no such broker')")
    failed = heron.finish(heron.start_submit(name, file), 1)
    assert "container_1_numbers_1 is" in failed.stderr
    assert "RuntimeError: no such broker" in failed.stderr
    assert "counting.py" in failed.stderr, "the last lines of its log"
    assert failed.stdout == ""
    assert heron.nodes(name) == []
    wait_until(lambda: not titles(name), "every process ends")
    (kept,) = (heron.home / "topologies").glob(f"local/*/default/{name}/*")
    assert kept.name == "log-files"
    assert str(kept) in failed.stderr
    heron.finish(heron.start_submit(name, program(tmp_path)))  # after the repair, the leftover files do no harm
    heron.remember(name)
    heron.kill(name)


def test_ctrl_c_during_submit_ends_the_import_of_the_topology_file(heron: HeronCommand, tmp_path: Path) -> None:
    name = unique("Interrupted")
    marker = tmp_path / "pid"
    file = program(tmp_path)
    file.write_text(f"import os, time\nopen({str(marker)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n")
    process = heron.start_submit(name, file)
    wait_until(lambda: marker.exists() and marker.read_text(), "the file is imported")
    process.send_signal(signal.SIGINT)
    said = heron.finish(process, 130).stderr
    assert "interrupted" in said
    assert "Traceback" not in said
    assert not Path("/proc", marker.read_text()).exists()
    heron.untouched()


# Homes that cannot be written. Where tmpfs cannot be mounted, the tests use another real path.


def mounted(folder: Path, options: str) -> bool:
    """Return True if a tmpfs is mounted at ``folder``."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0


def unmount(folder: Path) -> None:
    """Unmount ``folder``."""
    command = ["umount", str(folder)]
    wait_until(lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0, "umount")


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """Yield a home on a read-only file system."""
    folder = tmp_path / "read-only"
    if mounted(folder, "ro,size=1m,mode=700"):
        yield folder
        unmount(folder)
    elif os.geteuid() == 0:
        yield Path("/sys/heronry")  # not even root can create a folder there
    else:
        folder.chmod(0o500)
        yield folder
        folder.chmod(0o700)


def test_commands_report_a_read_only_home(read_only: Path, tmp_path: Path) -> None:
    with heron_command(tmp_path, read_only) as heron:
        file = program(tmp_path)
        for command in (["submit", "local", str(file)], ["config", "local", "set", "user.a", "1"]):
            said = heron.run(*command, code=5).stderr
            assert str(read_only) in said
            assert "HERONRY_HOME" in said
            assert "internal error" not in said
        assert "no topology runs at local" in heron.run("list", "local").stderr
        assert "failed checks" in heron.run("doctor", code=1).stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a home of 40 MiB."""
    folder = tmp_path / "small"
    if not mounted(folder, "size=40m,mode=700"):
        pytest.skip("needs the right to mount; test_submit_fails_at_the_file_size_limit stands for it")
    yield folder
    unmount(folder)


def fill(disk: Path, leave_bytes: int) -> Path:
    """Fill the disk except for this many bytes."""
    file = disk / "output"
    file.unlink(missing_ok=True)
    with file.open("wb") as sink:
        while True:
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            if free <= leave_bytes:
                break
            try:
                os.posix_fallocate(sink.fileno(), 0, free - leave_bytes)
                break
            except OSError as error:  # processes on this disk have written in the meantime
                if error.errno != errno.ENOSPC:
                    raise
    return file


def test_full_disk_before_during_and_after_submit(small_disk: Path, tmp_path: Path) -> None:
    with heron_command(tmp_path, small_disk) as heron:
        file = program(tmp_path)
        ballast = fill(small_disk, 1024 * 1024)
        said = heron.run("submit", "local", str(file), code=1).stderr
        assert f"{small_disk}: the disk is full" in said
        ballast.unlink()

        folder = tmp_path / "package"
        folder.mkdir()
        program(folder)
        (folder / "large.bin").write_bytes(os.urandom(1024) * 45 * 1024)
        said = heron.run("submit", "local", str(folder), "counting:Count", code=1).stderr
        assert "No space left on device" in said
        assert "free some space" in said
        heron.untouched()
        assert heron.json("list", "local") == []

        name = unique("OnAFullDisk")
        heron.submit(name, file)
        ballast = fill(small_disk, 0)
        wait_until(lambda: heron.status(name)["state"] == "degraded", "status knows that the disk is full")
        assert str(small_disk) in heron.status(name)["cause"]
        done = heron.finish(heron.start("kill", "local", name), code=None)
        wait_until(lambda: not titles(name), "every process ends")
        if done.returncode:  # the killed state could not be written; once there is space, kill ends the topology
            assert "disk" in done.stderr
            ballast.unlink()
            heron.run("kill", "local", name)
        heron.nothing_is_left(name)


def test_submit_fails_at_the_file_size_limit(heron: HeronCommand, tmp_path: Path) -> None:
    """The limit is the shell's (``ulimit -f``), and has the effect of a quota."""
    file = program(tmp_path)
    file.write_text(file.read_text() + "#" * 300_000)
    script = f"ulimit -f 100; exec {' '.join(heron.command)} submit local {file}"
    process = subprocess.Popen(
        ["bash", "-c", script, ""], cwd=heron.cwd, env=heron.environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    said = heron.finish(process, 1).stderr
    assert "File too large" in said
    assert "internal error" not in said
    heron.untouched()
