"""The packages a topology asks for in its requirements.txt: installed once for each content, then linked.

``pip install --target`` into a folder of the cache named after a digest of the requirements and of the interpreter. Two
submits at once do not disturb each other: each installs into a folder of its own, and the first to finish gives it the
name. A line that asks for Heronry itself is left out: the running one is used.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from heron_control.packaging.package import REQUIREMENTS, StagedPackage
from heronry.api.errors import PackageError

_HERONRY = re.compile(r"\s*heronry\s*($|[\[<>=!~;@# ])", re.IGNORECASE)
_INCLUDED = re.compile(r"\s*(?:-r|--requirement|-c|--constraint)[\s=]+(\S+)")
_BLAMED = (
    re.compile(r"No matching distribution found for ([^\s;(]+)"),
    re.compile(r"Could not find a version that satisfies the requirement ([^\s;(]+)"),
    re.compile(r"Invalid requirement: '?([^'\n:]+)"),
    re.compile(r"Failed (?:to build|building wheel for) '?([^\s']+)"),
    re.compile(r"Could not open requirements file: .*'([^']+)'"),
)


def install_requirements(
    package: StagedPackage,
    cache: Path,
    *,
    python: str = sys.executable,
    pip_arguments: Sequence[str] = (),
    timeout: float = 900.0,
) -> Path | None:
    """Install what ``package`` asks for, unless the cache has it, and link it as ``requirements/`` in the package.

    Returns the cache's folder; None if nothing is asked for. Raises PackageError naming the requirement that failed.
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
    """Return the version and ABI of an interpreter; empty if it does not answer, which pip reports then."""
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
    """The text of every file that ``-r`` and ``-c`` lines lead to."""
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
    """Run pip in ``folder``, where relative paths of the requirements begin."""
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
        return f"requirements.txt asks for {', '.join(wanted)}, but {python} has no pip; run `{python} -m ensurepip`"
    blamed = next((match[1] for pattern in _BLAMED if (match := pattern.search(said))), None)
    what = f"the requirement {blamed!r}" if blamed else f"one of the requirements {', '.join(wanted)}"
    offline = re.search(r"connection broken|Temporary failure in name resolution|NewConnectionError", said)
    cure = "is this machine online?" if offline else "try `pip install -r requirements.txt` to see more"
    errors = [line for line in said.splitlines() if line.startswith("ERROR:")] or said.strip().splitlines()[-3:]
    return f"{what} cannot be installed; {cure}\n" + "\n".join(f"  {line}" for line in errors[:8])


def _take_name(work: Path, place: Path) -> None:
    try:
        os.rename(work, place)
    except OSError:
        if not place.is_dir():  # else another submit was faster: same digest, same content
            raise


def _link(link: Path, target: Path) -> None:
    if link.is_symlink():
        link.unlink()
    elif link.is_dir():
        # A project's requirements/ folder of text files has done its work; modules in it would be hidden.
        if any(link.rglob("*.py")):
            raise PackageError("the package has a folder 'requirements' with modules in it; rename it")
        shutil.rmtree(link)
    elif link.exists():
        raise PackageError("the package has a file 'requirements'; rename it")
    link.symlink_to(target.resolve(), target_is_directory=True)
