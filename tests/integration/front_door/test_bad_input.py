"""Errors of the ``heron`` command for invalid input: each has its own message and exit code, and leaves no files.

A port in use cannot occur on the ``local`` cluster: every server binds port 0 and publishes the port it got. A test
here checks that no setting names a port.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
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


def rejected(folder: Path) -> Iterator[tuple[list[object], int, str]]:
    """Yield arguments of a submit, its exit code, and a part of its message; unit tests have the other messages."""
    yield [folder / "nowhere.py"], 3, "nowhere.py does not exist"
    file = folder / "broken.py"
    file.write_text("import os\nclass Count(\n")
    yield [file], 7, "SyntaxError"
    file.write_text("def load():\n    raise OSError('no such database')\n\nload()\n")
    yield [file], 7, "OSError: no such database"
    yield [program(folder), "Cuont"], 3, "did you mean 'Count'"
    yield ["--name", "../up", program(folder)], 2, "invalid topology name"
    yield [program(folder, source="'last'", more="last = Sink.spec(inputs={sink: Grouping.SHUFFLE})")], 7, "cycle"
    yield ["--config-property", "topology.max.spout.pendin=5", program(folder)], 2, "nearest"
    yield ["--strict", program(folder, initialize="pass\n    def fail(self, tup_id):\n        pass")], 7, "defines fail"
    archive = folder / "evil.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("flight.py", "")
        made.writestr("../evil.py", "evil")
    yield [archive, "flight:Flight"], 7, "leads out of the package"
    package = folder / "package"
    package.mkdir()
    program(package)
    (package / "requirements.txt").write_text("./not-there-1.0-py3-none-any.whl\n")
    yield [package, "counting:Count"], 7, "not-there-1.0"


@pytest.mark.core
def test_rejected_submit_has_its_exit_code_and_leaves_no_files(refused: Refused, tmp_path: Path) -> None:
    for arguments, code, told in rejected(tmp_path):
        assert told in refused(*arguments, code=code).stderr


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


def test_no_setting_names_a_port() -> None:
    """A setting that names a port would need its own error for a port in use, tested here."""
    assert [name for name in ALL_SETTINGS if "port" in name.split(".")] == []


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
