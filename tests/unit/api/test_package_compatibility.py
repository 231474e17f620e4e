"""Compatibility of packages with interpreters and platforms."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from heron_control.packaging.requirements import (
    TargetPlatform,
    find_incompatible_modules,
    is_compatible,
    pip_arguments,
    this_interpreter,
)

THERE = TargetPlatform("3.11", "cpython", "linux", "x86_64", "glibc 2.36")


def test_compatibility_depends_on_interpreter_and_platform() -> None:
    assert is_compatible(this_interpreter())
    assert is_compatible(THERE, here=replace(THERE, libc="glibc 2.28"))
    assert not is_compatible(THERE, here=replace(THERE, libc="glibc 2.39"))  # wheels for 2.39 would not load there
    for other in (
        replace(THERE, python="3.12"), replace(THERE, machine="aarch64"), replace(THERE, system="darwin"),
        replace(THERE, implementation="pypy"), replace(THERE, libc="musl 1.2"),
    ):  # fmt: skip
        assert not is_compatible(THERE, here=other)


def test_pip_receives_every_platform_of_the_target() -> None:
    arguments = pip_arguments(THERE)
    assert arguments[:5] == ["--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp"]
    platforms = [value for flag, value in pairwise(arguments) if flag == "--platform"]
    assert platforms[0] == "manylinux_2_36_x86_64"
    assert "manylinux2014_x86_64" in platforms
    assert platforms[-1] == "linux_x86_64"
    assert "manylinux_2_37_x86_64" not in platforms
    assert "musllinux_1_2_aarch64" in pip_arguments(replace(THERE, machine="aarch64", libc="musl 1.2"))


@pytest.mark.parametrize(
    ("file", "fits"),
    [
        ("a/fast.cpython-311-x86_64-linux-gnu.so", True),
        ("a/fast.cpython-312-x86_64-linux-gnu.so", False),
        ("a/fast.cpython-311-aarch64-linux-gnu.so", False),
        ("a/fast.abi3.so", True),
        ("a/fast.cp311-win_amd64.pyd", False),
        ("a/libssl.so", True),
        ("a/fast.cpython-311-darwin.so", False),
        ("a/fast.cpython-311.so", True),  # the name does not state a machine
        ("a/words.py", True),
    ],
)
def test_incompatible_compiled_modules_are_named(tmp_path: Path, file: str, fits: bool) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / file).write_bytes(b"")
    assert find_incompatible_modules(tmp_path, THERE) == ([] if fits else [file])
