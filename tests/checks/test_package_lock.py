"""Versions and hashes that images install: deploy/lock follows pyproject.toml and deploy/constraints.txt."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
GROUPS = {
    "core": PROJECT["project"]["dependencies"],
    "build": PROJECT["build-system"]["requires"],
    **PROJECT["project"]["optional-dependencies"],
}
ENTRY = re.compile(r"(?P<package>\S+==[^ \n]+(?: ; [^\\\n]+)?)(?P<hashes>(?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")
OUTDATED = "deploy/lock is outdated: run `make lock`"


def pinned() -> dict[str, str]:
    """Return the versions of deploy/constraints.txt."""
    lines = (DEPLOY / "constraints.txt").read_text().splitlines()
    pairs = [line.partition("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, _, version in pairs}


def locked(group: str) -> dict[str, Requirement]:
    """Return the packages of a file of deploy/lock. Each line is a comment or part of a package with hashes."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "lock" / f"{group}.txt").read_text(), flags=re.MULTILINE)
    assert ENTRY.sub("", text) == "", "a line without a version and hashes, such as an option that names an index"
    packages = [Requirement(found["package"]) for found in ENTRY.finditer(text)]
    return {canonicalize_name(package.name): package for package in packages}


def version_of(package: Requirement) -> str:
    """Return the exact version of a locked package."""
    (specifier,) = package.specifier
    return specifier.version


def test_each_extra_has_a_lock_file() -> None:
    assert {file.stem for file in (DEPLOY / "lock").iterdir()} == GROUPS.keys(), OUTDATED


@pytest.mark.parametrize("group", GROUPS)
def test_each_requirement_is_locked_to_a_version_that_it_accepts(group: str) -> None:
    packages = locked(group)
    wanted = [Requirement(text) for text in GROUPS[group]]
    missing = [str(one) for one in wanted if canonicalize_name(one.name) not in packages]
    assert missing == [], OUTDATED
    refused = [
        str(one) for one in wanted if not one.specifier.contains(version_of(packages[canonicalize_name(one.name)]))
    ]
    assert refused == [], OUTDATED


@pytest.mark.parametrize("group", GROUPS.keys() - {"build"})
def test_locked_versions_are_those_that_the_tests_install(group: str) -> None:
    """A package without a constraint is for other platforms or versions of Python than those of the tests."""
    versions = pinned()
    packages = locked(group)
    other = {name for name, package in packages.items() if name in versions and version_of(package) != versions[name]}
    assert other == set(), OUTDATED
    unknown = {name for name, package in packages.items() if name not in versions and package.marker is None}
    assert unknown == set(), "add them to deploy/constraints.txt"


def test_images_install_locked_files_only() -> None:
    dockerfile = re.sub(r"\\\n", "", (DEPLOY / "Dockerfile").read_text())
    installs = re.findall(r"pip (?:--python \S+ )?install [^&]*", dockerfile)
    assert installs
    assert [line for line in installs if "--require-hashes" not in line and "--no-index" not in line] == []
    assert "!deploy/lock" in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
