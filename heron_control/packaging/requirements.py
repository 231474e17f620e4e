"""Requirements of a topology: installed once per content, and checked against the target platform.

``pip install --target`` installs into a folder of the cache named after a digest of the requirements and of the
interpreter. Concurrent submissions install into folders of their own; the first to finish renames its folder. A line
that asks for Heronry itself is left out, because the running version is used.

Compiled modules are made for one Python version and one machine. ``TargetPlatform`` describes the interpreter that runs
the topologies of a cluster. ``pip_arguments`` makes pip fetch wheels for it instead of this interpreter;
``find_incompatible_modules`` finds modules in a package that it could not import.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from heron_control.packaging.package import REQUIREMENTS, StagedPackage
from heronry.api.errors import PackageError

# Legacy names of wheel platforms (before PEP 600), by minor version of glibc 2. pip does not sort platforms itself.
_LEGACY = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}
_EXTENSION = re.compile(r"\.(?:(?P<tag>cpython-\d+\w*|abi3|pypy\d+-\w+)(?:-(?P<machine>[\w-]+?))?\.)?(?:so|pyd|dylib)$")
_SYSTEMS = ("linux", "darwin")
_ARCHITECTURES = ("x86_64", "aarch64", "i386", "i686", "arm", "powerpc64le", "ppc64le", "s390x", "riscv64")
_HERONRY = re.compile(r"\s*heronry\s*($|[\[<>=!~;@# ])", re.IGNORECASE)
_INCLUDED = re.compile(r"\s*(?:-r|--requirement|-c|--constraint)[\s=]+(\S+)")
_BLAMED = (
    re.compile(r"No matching distribution found for ([^\s;(]+)"),
    re.compile(r"Could not find a version that satisfies the requirement ([^\s;(]+)"),
    re.compile(r"Invalid requirement: '?([^'\n:]+)"),
    re.compile(r"Failed (?:to build|building wheel for) '?([^\s']+)"),
    re.compile(r"Could not open requirements file: .*'([^']+)'"),
)


@dataclass(frozen=True, slots=True)
class TargetPlatform:
    """Interpreter: ``python`` as 3.11, ``system`` as linux, ``machine`` as x86_64, ``libc`` as glibc 2.36."""

    python: str
    implementation: str
    system: str
    machine: str
    libc: str

    def __str__(self) -> str:
        return f"{self.implementation} {self.python} on {self.system} {self.machine} ({self.libc})"


def this_interpreter() -> TargetPlatform:
    """Return the platform of the running interpreter."""
    libc, version = platform.libc_ver()
    return TargetPlatform(
        f"{sys.version_info.major}.{sys.version_info.minor}",
        sys.implementation.name,
        platform.system().lower(),
        platform.machine().lower(),
        f"{libc or 'unknown'} {version}".strip(),
    )


def is_compatible(target: TargetPlatform, here: TargetPlatform | None = None) -> bool:
    """Return True if packages installed for this interpreter also fit ``target``."""
    here = here or this_interpreter()
    same = (here.python, here.implementation, here.system, here.machine) == (
        target.python, target.implementation, target.system, target.machine,
    )  # fmt: skip
    name, ours = _libc(here)
    other, theirs = _libc(target)
    return same and name == other and ours <= theirs  # wheels may need any libc up to ours


def pip_arguments(target: TargetPlatform) -> list[str]:
    """Return options of ``pip install --target`` that choose wheels for ``target``, without compiling."""
    arguments = ["--only-binary=:all:", "--python-version", target.python]
    if target.implementation == "cpython":
        arguments += ["--implementation", "cp"]
    for name in _platforms(target):
        arguments += ["--platform", name]
    return arguments


def find_incompatible_modules(package: Path, target: TargetPlatform) -> list[str]:
    """Return compiled modules that ``target`` could not import, as sorted relative paths."""
    return sorted(name for name in _compiled(package) if not _fits(name, target))


def _compiled(package: Path) -> Iterator[str]:
    for place, _, files in os.walk(package, followlinks=True):
        for file in files:
            if _EXTENSION.search(file):
                yield Path(place, file).relative_to(package).as_posix()


def _fits(name: str, target: TargetPlatform) -> bool:
    """Return True unless the tag in the name excludes the target. Names without a tag pass."""
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


def _platforms(target: TargetPlatform) -> list[str]:
    if target.system != "linux":
        return [f"{target.system}_{target.machine}"]
    name, version = _libc(target)
    platforms = []
    if name == "glibc" and version:
        for minor in range(version[1], 4, -1):
            platforms.append(f"manylinux_2_{minor}_{target.machine}")
            if minor in _LEGACY:
                platforms.append(f"{_LEGACY[minor]}_{target.machine}")
    if name == "musl" and version:
        platforms += [f"musllinux_1_{minor}_{target.machine}" for minor in range(version[1], -1, -1)]
    return [*platforms, f"linux_{target.machine}"]


def _libc(target: TargetPlatform) -> tuple[str, tuple[int, ...]]:
    name, _, version = target.libc.partition(" ")
    numbers = tuple(int(part) for part in version.split(".") if part.isdecimal())
    return name, numbers if len(numbers) >= 2 else ()


def install_requirements(
    package: StagedPackage,
    cache: Path,
    *,
    python: str = sys.executable,
    pip_arguments: Sequence[str] = (),
    timeout: float = 900.0,
) -> Path | None:
    """Install the requirements of ``package``, unless cached, and link them as ``requirements/``.

    Returns:
        The cache's folder, or None without requirements.

    Raises:
        PackageError: A requirement, named in the message, cannot be installed.
    """
    if package.requirements is None:
        return None
    lines = package.requirements.read_text(encoding="utf-8", errors="replace").splitlines()
    wanted = [line for line in lines if line.split("#", 1)[0].strip() and not _HERONRY.match(line)]
    if not wanted:
        return None
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / _digest(wanted, package.requirements.parent, python, pip_arguments)
    if not place.is_dir():
        work = Path(tempfile.mkdtemp(prefix=".install-", dir=cache))
        try:
            _pip(wanted, package.requirements.parent, work / "site", python, pip_arguments, timeout)
            _take_name(work / "site", place)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    _link(package.root / REQUIREMENTS, place)
    return place


def _abi_of(python: str) -> str:
    """Return version and ABI of an interpreter; "" if it does not answer, which pip then reports."""
    if python == sys.executable:
        return f"{sys.implementation.cache_tag} {sys.abiflags}"
    command = [python, "-c", "import sys; print(sys.implementation.cache_tag, sys.abiflags)"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _digest(wanted: Sequence[str], folder: Path, python: str, pip_arguments: Sequence[str]) -> str:
    digest = hashlib.sha256()
    interpreter = (python, _abi_of(python), sysconfig.get_platform())
    for text in (*interpreter, *pip_arguments, *wanted, *_included(wanted, folder, set())):
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:32]


def _included(lines: Sequence[str], folder: Path, seen: set[Path]) -> Iterator[str]:
    """Return the text of every file that ``-r`` and ``-c`` lines refer to."""
    for line in lines:
        match = _INCLUDED.match(line)
        path = (folder / match[1]).resolve() if match else None
        if path is None or path in seen or not path.is_file():
            continue
        seen.add(path)
        text = path.read_text(encoding="utf-8", errors="replace")
        yield text
        yield from _included(text.splitlines(), path.parent, seen)


def _pip(
    wanted: Sequence[str], folder: Path, target: Path, python: str, pip_arguments: Sequence[str], timeout: float
) -> None:
    """Run pip in ``folder``, to which the requirements' paths are relative."""
    target.mkdir()
    descriptor, name = tempfile.mkstemp(prefix=".requirements-", suffix=".txt", dir=folder)
    command = [
        python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-warn-conflicts",
        "--retries", "1", "--timeout", "20", "--target", str(target), *pip_arguments, "-r", name,
    ]  # fmt: skip
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write("\n".join(wanted) + "\n")
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=timeout, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise PackageError(f"installing {', '.join(wanted)} took longer than {timeout:g} s") from None
    finally:
        os.unlink(name)
    if done.returncode != 0:
        raise PackageError(_explain(done.stdout, wanted, python))


def _explain(said: str, wanted: Sequence[str], python: str) -> str:
    if "No module named pip" in said:
        return f"requirements.txt needs {', '.join(wanted)}, but {python} has no pip; run `{python} -m ensurepip`"
    blamed = next((match[1] for pattern in _BLAMED if (match := pattern.search(said))), None)
    what = f"the requirement {blamed!r}" if blamed else f"one of the requirements {', '.join(wanted)}"
    offline = re.search(r"connection broken|Temporary failure in name resolution|NewConnectionError", said)
    cure = "check the network connection" if offline else "try `pip install -r requirements.txt` to see more"
    errors = [line for line in said.splitlines() if line.startswith("ERROR:")] or said.strip().splitlines()[-3:]
    return f"{what} cannot be installed; {cure}\n" + "\n".join(f"  {line}" for line in errors[:8])


def _take_name(work: Path, place: Path) -> None:
    try:
        os.rename(work, place)
    except OSError:
        if not place.is_dir():  # otherwise another submission was faster, with the same content
            raise


def _link(link: Path, target: Path) -> None:
    if link.is_symlink():
        link.unlink()
    elif link.is_dir():
        # A project's requirements/ folder of text files is not needed any longer; modules in it would be hidden.
        if any(link.rglob("*.py")):
            raise PackageError("the package has a folder 'requirements' with modules in it; rename it")
        shutil.rmtree(link)
    elif link.exists():
        raise PackageError("the package has a file 'requirements'; rename it")
    link.symlink_to(target.resolve(), target_is_directory=True)
