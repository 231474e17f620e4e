"""Does a package fit the interpreter that will run it? Compiled modules are made for one Python and one machine.

``Target`` says what runs the topologies of a cluster. ``pip_arguments`` makes pip fetch wheels for it instead of for
this interpreter; ``misfits`` finds the compiled modules in a package that it could not import.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Where a wheel for "any glibc from this on" begins; older names first, pip knows no order of its own.
_LEGACY = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}
_EXTENSION = re.compile(r"\.(?:(?P<tag>cpython-\d+\w*|abi3|pypy\d+-\w+)(?:-(?P<machine>[\w-]+?))?\.)?(?:so|pyd|dylib)$")
_SYSTEMS = ("linux", "darwin")
_ARCHITECTURES = ("x86_64", "aarch64", "i386", "i686", "arm", "powerpc64le", "ppc64le", "s390x", "riscv64")


@dataclass(frozen=True, slots=True)
class Target:
    """An interpreter: ``python`` as 3.11, ``system`` as linux, ``machine`` as x86_64, ``libc`` as glibc 2.36."""

    python: str
    implementation: str
    system: str
    machine: str
    libc: str

    def __str__(self) -> str:
        return f"{self.implementation} {self.python} on {self.system} {self.machine} ({self.libc})"


def this_interpreter() -> Target:
    """What runs now."""
    libc, version = platform.libc_ver()
    return Target(
        f"{sys.version_info.major}.{sys.version_info.minor}",
        sys.implementation.name,
        platform.system().lower(),
        platform.machine().lower(),
        f"{libc or 'unknown'} {version}".strip(),
    )


def runs_as_here(target: Target, here: Target | None = None) -> bool:
    """True if what is installed for this interpreter fits ``target``, too."""
    here = here or this_interpreter()
    same = (here.python, here.implementation, here.system, here.machine) == (
        target.python, target.implementation, target.system, target.machine,
    )  # fmt: skip
    name, ours = _libc(here)
    other, theirs = _libc(target)
    return same and name == other and ours <= theirs  # wheels may ask for any libc up to ours


def pip_arguments(target: Target) -> list[str]:
    """Options of ``pip install --target`` that choose wheels for ``target``; nothing is compiled."""
    arguments = ["--only-binary=:all:", "--python-version", target.python]
    if target.implementation == "cpython":
        arguments += ["--implementation", "cp"]
    for name in _platforms(target):
        arguments += ["--platform", name]
    return arguments


def misfits(package: Path, target: Target) -> list[str]:
    """The compiled modules in the package that ``target`` could not import, as paths below it; sorted."""
    return sorted(name for name in _compiled(package) if not _fits(name, target))


def _compiled(package: Path) -> Iterator[str]:
    for place, _, files in os.walk(package, followlinks=True):
        for file in files:
            if _EXTENSION.search(file):
                yield Path(place, file).relative_to(package).as_posix()


def _fits(name: str, target: Target) -> bool:
    """A name without a tag says nothing, and libraries that are no modules have none: those pass."""
    if name.endswith((".pyd", ".dylib")):
        return target.system != "linux"
    match = _EXTENSION.search(name)
    tag, machine = (match["tag"], match["machine"] or "") if match else (None, "")
    if tag is None:
        return True
    wanted = f"cpython-{target.python.replace('.', '')}"
    if tag != "abi3" and tag != wanted:
        return False
    if any(system in machine and system != target.system for system in _SYSTEMS):
        return False
    named = next((a for a in _ARCHITECTURES if machine.startswith(a)), None)
    return named is None or named == target.machine


def _platforms(target: Target) -> list[str]:
    if target.system != "linux":
        return [f"{target.system}_{target.machine}"]
    name, version = _libc(target)
    found = []
    if name == "glibc" and version:
        for minor in range(version[1], 4, -1):
            found.append(f"manylinux_2_{minor}_{target.machine}")
            if minor in _LEGACY:
                found.append(f"{_LEGACY[minor]}_{target.machine}")
    if name == "musl" and version:
        found += [f"musllinux_1_{minor}_{target.machine}" for minor in range(version[1], -1, -1)]
    return [*found, f"linux_{target.machine}"]


def _libc(target: Target) -> tuple[str, tuple[int, ...]]:
    name, _, version = target.libc.partition(" ")
    numbers = tuple(int(part) for part in version.split(".") if part.isdecimal())
    return name, numbers if len(numbers) >= 2 else ()
