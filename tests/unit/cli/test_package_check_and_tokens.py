"""Packages for another interpreter, and the credentials file."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from heron_cli.commands.access import parse_server_url
from heron_cli.home import Home, SavedLogin, read_credentials, write_credentials
from heron_cli.rollout import fit_to_target
from heron_control.packaging.requirements import TargetPlatform, this_interpreter
from heron_runtime.failures import Failure, InvalidTopology, NotAllowed, UsageError

OTHER = replace(this_interpreter(), python="3.99")


def wheel(folder: Path, tags: str, *files: str) -> None:
    """Write a wheel of ``tinylib`` with these files."""
    info = "tinylib-1.0.dist-info"
    with zipfile.ZipFile(folder / f"tinylib-1.0-{tags}.whl", "w") as archive:
        for name in files:
            archive.writestr(name, "")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tinylib\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tags}\n")
        records = [*files, f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD"]
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in records))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a staged package that requires tinylib, available only from the folder ``wheels``."""
    (tmp_path / "wheels").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "words.py").write_text("import tinylib\n")
    (folder / "requirements.txt").write_text("tinylib\n")
    return folder


def run(package: Path, target: TargetPlatform) -> None:
    fit_to_target(package, target, "docker", package.parent / "cache", lambda _: None)


def test_requirements_are_installed_for_the_target_python(package: Path) -> None:
    wheels = package.parent / "wheels"
    wheel(wheels, "cp399-cp399-linux_x86_64", "tinylib/fast.cpython-399-x86_64-linux-gnu.so")
    run(package, replace(OTHER, system="linux", machine="x86_64"))
    found = [p.name for p in (package / "requirements" / "tinylib").iterdir()]
    assert found == ["fast.cpython-399-x86_64-linux-gnu.so"]


def test_missing_wheel_for_the_target_names_the_remedy(package: Path) -> None:
    wheel(package.parent / "wheels", "cp398-cp398-linux_x86_64", "tinylib/fast.so")
    with pytest.raises(InvalidTopology, match=r"run cpython 3\.99 .*tinylib") as caught:
        run(package, OTHER)
    assert caught.value.exit_code == 7
    assert "submit from Python 3.99" in caught.value.cure


def test_incompatible_compiled_modules_are_named(package: Path) -> None:
    (package / "requirements.txt").unlink()
    (package / "fast.cpython-398-x86_64-linux-gnu.so").write_bytes(b"")
    with pytest.raises(InvalidTopology, match=r"cannot import 'fast\.cpython-398"):
        run(package, OTHER)


def test_package_for_this_interpreter_is_unchanged(package: Path) -> None:
    run(package, this_interpreter())  # nothing is fetched, because no wheel exists
    assert not (package / "requirements").exists()


def test_credentials_are_readable_only_by_the_user(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    docker = SavedLogin("http://127.0.0.1:9000", "docker", "s3cret")
    logins = {"docker": docker, "b": SavedLogin("https://x", "prod", "t")}
    assert read_credentials(home) == {}
    write_credentials(home, logins)
    assert read_credentials(home) == logins
    assert (home.root / "credentials.json").stat().st_mode & 0o777 == 0o600
    assert "s3cret" not in repr(logins)
    assert [p.name for p in home.root.iterdir()] == ["credentials.json"]
    (home.root / "credentials.json").chmod(0o640)
    with pytest.raises(NotAllowed, match="other users"):
        read_credentials(home)
    (home.root / "credentials.json").chmod(0o600)
    for damaged in ("{", "[]", '{"docker": {"api": "x"}}', '{"docker": 3}'):
        (home.root / "credentials.json").write_text(damaged)
        with pytest.raises(Failure, match="invalid content"):
            read_credentials(home)
    write_credentials(home, {})
    assert list(home.root.iterdir()) == []


def test_api_server_address_is_validated() -> None:
    assert parse_server_url("http://127.0.0.1:9000/") == "http://127.0.0.1:9000"
    assert parse_server_url("https://heron.example.org/api/") == "https://heron.example.org/api"
    for bad in ("127.0.0.1:9000", "ftp://x", "http://", "http://u:p@x", "http://x:0", "http://x?token=1", "http://x\n"):
        with pytest.raises(UsageError):
            parse_server_url(bad)
