"""Versions that images install."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from heron_runtime.spawn import source_root

ROOT = Path(source_root())
DEPLOY = ROOT / "deploy"


def pinned() -> dict[str, str]:
    lines = (DEPLOY / "constraints.txt").read_text().splitlines()
    pairs = [line.partition("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, _, version in pairs}


def test_every_requirement_is_pinned_to_a_version_that_it_accepts() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for name in ("archive", "spark", "kubernetes") for line in project["optional-dependencies"][name]]
    versions = pinned()
    wrong = [
        text
        for text in (*project["dependencies"], *extras)
        if not (wanted := Requirement(text)).specifier.contains(versions.get(canonicalize_name(wanted.name), "0"))
    ]
    assert wrong == []


def test_images_install_the_pinned_versions() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r"pip [^&]*--constraint /constraints\.txt [^&]*-r /requirements\.txt", dockerfile)
    assert "COPY deploy/constraints.txt /" in dockerfile
    assert "!deploy/constraints.txt" in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
