"""User of user code: files shared with that user, and valid users."""

from __future__ import annotations

import os
import pwd
import socket
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_control.schedulers.runtime import make_runtime_dir, remove_runtime_dir
from heron_runtime.code_user import NAME, CodeUser, attainable_code_user, code_user
from heron_runtime.failures import NotAllowed, UsageError
from heron_runtime.launch import Launch

FOLDER_MODES = st.integers(0o700, 0o777)
FILE_MODES = st.integers(0o400, 0o777)


def us(gid: int = -1) -> CodeUser:
    """Return a user whose group is ours, with which any process may share, or one of another group."""
    return CodeUser("us", os.getuid(), os.getgid() if gid < 0 else gid, (), "/")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@given(before=FOLDER_MODES, ours=st.booleans())
def test_folder_on_the_path_stays_as_private_as_before(before: int, ours: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, before)
        us(-1 if ours else os.getgid() + 1).let_through(Path(folder))
        after = mode(Path(folder))
        assert after & 0o766 == before & 0o766, "nobody can list or write who could not"
        assert after & 0o010, "but its group can pass"
        assert after & 0o001 or ours
        os.chmod(folder, 0o700)


@given(folder_mode=FOLDER_MODES, file_mode=FILE_MODES)
def test_code_becomes_readable_but_not_writable(folder_mode: int, file_mode: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "pkg").mkdir()
        (root / "pkg" / "code.py").touch()
        (root / "secret").touch(0o400)
        (root / "pkg" / "link").symlink_to(root / "secret")
        os.chmod(root / "pkg" / "code.py", file_mode)
        os.chmod(root / "pkg", folder_mode)
        us().may_read_all(root / "pkg")
        assert mode(root / "pkg") == folder_mode | 0o055
        assert mode(root / "pkg" / "code.py") == file_mode | 0o044
        assert mode(root / "secret") == 0o400, "links lead nowhere"


def test_shared_runtime_folder_is_ours_and_a_readable_one_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "heronry-0" / "01234567"
    launch = Launch("local", "r", "e", "t", "t-1", "memory://", str(tmp_path), str(folder))
    make_runtime_dir(folder)
    us().open_runtime_dir(folder)
    assert (mode(folder.parent), mode(folder)) in ((0o711, 0o710), (0o700, 0o710))
    make_runtime_dir(folder)
    folder.chmod(0o750)
    with pytest.raises(NotAllowed, match="is not a private folder"):
        make_runtime_dir(folder)
    remove_runtime_dir(launch)
    assert folder.exists(), "left alone"
    folder.chmod(0o710)
    remove_runtime_dir(launch)
    assert not folder.exists()


def test_code_user_must_be_another_existing_user(monkeypatch: pytest.MonkeyPatch) -> None:
    assert code_user({}) is attainable_code_user({}) is None, "off unless it is asked for"
    for name in ("nobody-of-that-name", "with\0nul", "root", pwd.getpwuid(os.geteuid()).pw_name):
        with pytest.raises(UsageError, match=NAME):
            attainable_code_user({NAME: name})
    monkeypatch.setattr("heron_runtime.code_user.capabilities", lambda: 0)
    with pytest.raises(NotAllowed, match="only root"):
        attainable_code_user({NAME: "nobody"})


def test_launch_of_instances_names_no_secret_location() -> None:
    launch = Launch(
        "docker", "r", "e", "t", "t-1", "zookeeper://z:2181/h", "/home", "/run", api_url="http://api:9000",
        store_credential="/start/credential", key="/start/key.pem", settings={"heron.scheduler": "docker"},
    )  # fmt: skip
    text = launch.for_instances().to_json()
    for hidden in ("/start", "zookeeper", "api:9000"):
        assert hidden not in text
    assert launch.for_instances().settings == launch.settings


def test_link_is_not_shared_and_its_target_is_unchanged(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    ours.mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(ours)
    with pytest.raises(OSError, match="symbolic links"):
        us().share(link, 0o1770)
    assert not us().share_own_folder(link, 0o1770)
    assert mode(ours) == 0o700


def test_only_own_folders_are_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir(mode=0o700)
    file.touch(0o600)
    assert not us().share_own_folder(tmp_path / "missing", 0o1770)
    assert not us().share_own_folder(file, 0o1770)
    assert us().share_own_folder(folder, 0o1770)
    assert (mode(folder), mode(file)) == (0o1770, 0o600)
    folder.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not us().share_own_folder(folder, 0o1770)
    assert mode(folder) == 0o700


def test_socket_and_file_can_be_shared(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        us().share(tmp_path / "s", 0o660)
    (tmp_path / "f").touch(0o600)
    us().share(tmp_path / "f", 0o640)
    assert (mode(tmp_path / "s"), mode(tmp_path / "f")) == (0o660, 0o640)
