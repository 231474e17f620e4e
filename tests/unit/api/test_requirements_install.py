"""Installation of requirements.txt with the real pip from local distributions; errors name the requirement."""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

import pytest

from heron_control.packaging.definition import define_topology
from heron_control.packaging.package import StagedPackage, import_paths, stage_package
from heron_control.packaging.requirements import install_requirements
from heronry.api.errors import PackageError

OFFLINE = ("--no-index",)
FLOW = """
import tiny_helper
from heronry import Spout, Topology
class Words(Spout):
    outputs = ["word"]
    def next_tuple(self): pass
class Flow(Topology):
    words = Words.spec(par=tiny_helper.NUMBER)
"""


def make_wheel(folder: Path, name: str, code: str) -> Path:
    """Write a minimal wheel with one module."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text)}\n"
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return wheel


def project(tmp_path: Path, requirements: str, **files: str) -> StagedPackage:
    source = tmp_path / "source"
    source.mkdir(exist_ok=True)
    (source / "requirements.txt").write_text(requirements)
    for name, text in files.items():
        path = source / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    number = len(list(tmp_path.glob("out*")))
    return stage_package(source, tmp_path / f"out{number}")


def test_requirements_are_installed_once_and_linked_into_each_package(tmp_path: Path) -> None:
    make_wheel(tmp_path, "tiny_helper", "NUMBER = 7\n")
    arguments = (*OFFLINE, "--find-links", str(tmp_path))
    places = []
    for _ in range(2):
        package = project(tmp_path, "# ours\nheronry>=0.1\ntiny_helper==1.0\n", flow_dot_py=FLOW)
        places.append(install_requirements(package, tmp_path / "cache", pip_arguments=arguments))
        assert import_paths(package.root) == [str(package.root), str(package.root / "requirements")]
        assert define_topology(package.entry, "Flow").components[0].parallelism == 7
        assert not list(package.root.glob(".requirements-*"))
    assert places[0] == places[1]
    assert [p.name for p in (tmp_path / "cache").iterdir()] == [places[0].name if places[0] else ""]


def test_empty_requirements_install_nothing(tmp_path: Path) -> None:
    for text in ("", "# nothing\n", "heronry\n"):
        assert install_requirements(project(tmp_path, text), tmp_path / "cache") is None
    assert install_requirements(StagedPackage(tmp_path, tmp_path, None), tmp_path / "cache") is None


def test_missing_requirement_is_named(tmp_path: Path) -> None:
    package = project(tmp_path, "a-distribution-of-nobody==3.1\n")
    with pytest.raises(PackageError) as caught:
        install_requirements(package, tmp_path / "cache", pip_arguments=OFFLINE)
    assert str(caught.value).startswith("the requirement 'a-distribution-of-nobody==3.1' cannot be installed")
    assert list((tmp_path / "cache").iterdir()) == []


def test_malformed_requirement_is_named(tmp_path: Path) -> None:
    package = project(tmp_path, "this is no requirement\n")
    with pytest.raises(PackageError, match="this is no requirement"):
        install_requirements(package, tmp_path / "cache", pip_arguments=OFFLINE)


def test_requirements_folder_is_replaced_unless_it_has_modules(tmp_path: Path) -> None:
    make_wheel(tmp_path, "tiny_helper", "NUMBER = 2\n")
    arguments = (*OFFLINE, "--find-links", str(tmp_path))
    package = project(tmp_path, "-r requirements/base.txt\n", requirements__base_dot_txt="tiny_helper\n")
    first = install_requirements(package, tmp_path / "cache", pip_arguments=arguments)
    assert (package.root / "requirements" / "tiny_helper.py").is_file()
    changed = project(tmp_path, "-r requirements/base.txt\n", requirements__base_dot_txt="tiny_helper==1.0\n")
    assert install_requirements(changed, tmp_path / "cache", pip_arguments=arguments) != first
    modules = project(tmp_path, "-r requirements/base.txt\n", requirements__check_dot_py="x = 1\n")
    with pytest.raises(PackageError, match="rename it"):
        install_requirements(modules, tmp_path / "cache", pip_arguments=arguments)


def test_python_without_pip_is_reported(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\necho "$0: No module named pip"\nexit 1\n')
    fake.chmod(0o755)
    with pytest.raises(PackageError, match=r"has no pip; run `.*python -m ensurepip`"):
        install_requirements(project(tmp_path, "six\n"), tmp_path / "cache", python=str(fake))


def test_another_interpreter_version_installs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(tmp_path, "tiny_helper", "NUMBER = 7\n")
    arguments = (*OFFLINE, "--find-links", str(tmp_path))
    first = install_requirements(project(tmp_path, "tiny_helper\n"), tmp_path / "cache", pip_arguments=arguments)
    monkeypatch.setattr(sys, "abiflags", "t")  # as after an upgrade at the same path
    second = install_requirements(project(tmp_path, "tiny_helper\n"), tmp_path / "cache", pip_arguments=arguments)
    assert first != second
