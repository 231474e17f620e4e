"""``heron doctor``: what is missing on this machine, and how to mend it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from rich.text import Text

from heron_cli.address import LOCAL
from heron_cli.console import Format, print_json, print_table, say
from heron_cli.credentials import read_credentials
from heron_cli.home import Home
from heron_cli.options import Output, Verbose
from heron_control.schedulers.local_processes import processes_of
from heron_control.schedulers.runtime import make_runtime_dir, runtime_base
from heron_control.schedulers.scheduler import SchedulerError
from heron_control.schedulers.topology_folder import Homes, load_launch
from heron_runtime import cgroups
from heron_runtime.failures import Failure, NotAllowed
from heron_runtime.net.foreign import translate
from heron_runtime.state import open_address, topologies
from heron_runtime.state.files import FilesStore
from heron_runtime.state.store import StateStore, StoreError

PYTHON_NEEDED = (3, 11)
DISK_NEEDED_BYTES = 1 << 30
FILES_NEEDED = 1024
JAVA_NEEDED = 17
_ANSWER_SECS = 10


class Health(StrEnum):
    """What one check says of this machine; a NOTE is about something optional."""

    GOOD = "good"
    NOTE = "note"
    BAD = "bad"


@dataclass(frozen=True)
class Finding:
    """What one check found, and the cure if there is need of one."""

    check: str
    verdict: Health
    found: str
    cure: str = ""


def doctor(output: Output = Format.TABLE, verbose: Verbose = False) -> None:
    """Look for what is missing on this machine. Exits with 1 if something has to be mended."""
    findings = list(examine(Home.of_user()))
    if output is Format.JSON:
        print_json([asdict(finding) for finding in findings])
    else:
        styles = {Health.GOOD: "green", Health.NOTE: "yellow", Health.BAD: "bold red"}
        rows = [(f.check, Text(f.verdict, style=styles[f.verdict]), f.found, f.cure) for f in findings]
        print_table(("check", "verdict", "found", "cure"), rows)
    bad = [finding.check for finding in findings if finding.verdict is Health.BAD]
    if bad:
        raise Failure(f"to be mended: {', '.join(bad)}")
    say("everything that Heronry needs is here", "green")


def examine(home: Home) -> Iterator[Finding]:
    """Every check in turn; one that breaks is a finding too."""
    checks: tuple[tuple[str, Callable[[Home], Iterator[Finding]]], ...] = (
        ("Python", _python),
        ("packages", _packages),
        ("home", _home),
        ("disk", _disk),
        ("state store", _store),
        ("runtime folder", _runtime),
        ("control groups", _control_groups),
        ("network", _network),
        ("clusters", _clusters),
        ("open files", _open_files),
        ("Java", _java),
        ("Docker", _docker),
        ("Slurm", _slurm),
        ("Kubernetes", _kubernetes),
    )
    for name, check in checks:
        try:
            yield from check(home)
        except Exception as error:
            known = translate(error)
            text, cure = (known.message, known.cure) if known else (f"{type(error).__name__}: {error}", "")
            yield Finding(name, Health.BAD, text, cure)


def _python(_: Home) -> Iterator[Finding]:
    here = ".".join(str(part) for part in sys.version_info[:3])
    good = sys.version_info[:2] >= PYTHON_NEEDED
    cure = "" if good else "Install Python 3.11 or newer and make the environment anew."
    yield Finding("Python", Health.GOOD if good else Health.BAD, f"{here} at {sys.executable}", cure)


def _packages(_: Home) -> Iterator[Finding]:
    names = [re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0] for text in requires("heronry") or () if ";" not in text]
    missing = []
    for name in names:
        try:
            version(name)
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        yield Finding("packages", Health.BAD, f"missing: {', '.join(missing)}", f"pip install {' '.join(missing)}")
    else:
        yield Finding("packages", Health.GOOD, f"all {len(names)} are installed")


def _home(home: Home) -> Iterator[Finding]:
    home.prepare()
    with tempfile.TemporaryFile(dir=home.root):
        yield Finding("home", Health.GOOD, f"{home.root} is writable")
    home.read_config()


def _disk(home: Home) -> Iterator[Finding]:
    free = shutil.disk_usage(home.root).free
    good = free >= DISK_NEEDED_BYTES
    cure = "" if good else "Free some space, or set HERONRY_HOME to a larger disk."
    yield Finding("disk", Health.GOOD if good else Health.BAD, f"{free / (1 << 30):.1f} GiB free", cure)


def _store(home: Home) -> Iterator[Finding]:
    store = open_address(home.store)
    store.open()
    try:
        damage = store.damage() if isinstance(store, FilesStore) else []
        if damage:
            cure = f"Stop what runs, move {home.root / 'state'} away and submit again."
            yield Finding("state store", Health.BAD, damage[0], cure)
            return
        good = f"{home.root / 'state'} is sound" if isinstance(store, FilesStore) else f"{home.store.url} answers"
        yield Finding("state store", Health.GOOD, good)
        for name, place in _stale(home, store):
            cure = f"heron kill local/{place} {name}"
            yield Finding("stale topology", Health.BAD, f"{name} stands in the store, but nothing of it runs", cure)
    finally:
        store.close()


def _stale(home: Home, store: StateStore) -> Iterator[tuple[str, str]]:
    """(name, role/environ) of topologies that stand in the store while nothing of them lives."""
    homes = Homes(home.root, LOCAL, shared=True)
    for state in topologies.list_topologies(store):
        try:
            record = topologies.read_topology(store, state.topology)
            launch = load_launch(homes.of(state))
        except (StoreError, NotAllowed):
            alive: object = False
        else:
            alive = record.scheduler or record.containers or (launch is not None and processes_of(launch))
        if not alive:
            yield state.topology, f"{state.role}/{state.environ}"


def _runtime(_: Home) -> Iterator[Finding]:
    base = runtime_base()
    probe = base / f"probe-{os.getpid()}"
    make_runtime_dir(probe)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(probe / "mm4096.sock"))
    finally:
        shutil.rmtree(probe, ignore_errors=True)
    yield Finding("runtime folder", Health.GOOD, f"{base} takes Unix sockets")


def _control_groups(_: Home) -> Iterator[Finding]:
    above = cgroups.place()
    if above is not None:
        probe = above / f"{cgroups.PREFIX}probe-{os.getpid()}"
        probe.mkdir()
        probe.rmdir()
        yield Finding("control groups", Health.GOOD, f"each container of a topology gets one, in {above}")
        return
    yield Finding(
        "control groups", Health.NOTE,
        "none may be made here: what user code leaves behind is found by its descent and its marks alone",
        "Submit from a unit that may: systemd-run --user --scope -p Delegate=yes heron submit …",
    )  # fmt: skip


def _network(_: Home) -> Iterator[Finding]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with socket.create_connection(address, timeout=_ANSWER_SECS):
            yield Finding("network", Health.GOOD, "127.0.0.1 can be reached")


def _clusters(home: Home) -> Iterator[Finding]:
    """Those that this user has logged in to: does the api server answer, and take the token?"""
    for name, login in read_credentials(home).items():
        # Here, since without a login nothing needs httpx, which takes a moment.
        from heron_cli.api_client import ApiClient

        check = f"cluster {name}"
        try:
            with ApiClient(login, name) as client:
                found = client.json("GET", "/api/v1/whoami")
                ready = client.json("GET", "/readyz")
        except Failure as error:
            yield Finding(check, Health.BAD, error.message, error.cure or f"heron login {name} --api {login.api}")
            continue
        until = f" until {found['expires_at']}" if found.get("expires_at") else ""
        text = f"{login.api} answers, role {found['role']}{until}, {ready['topologies']} topologies"
        yield Finding(check, Health.GOOD, text)


def _open_files(_: Home) -> Iterator[Finding]:
    import resource

    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    good = soft == resource.RLIM_INFINITY or soft >= FILES_NEEDED
    cure = "" if good else f"ulimit -n {FILES_NEEDED}"
    yield Finding("open files", Health.GOOD if good else Health.NOTE, f"at most {soft} a process", cure)


def _java(_: Home) -> Iterator[Finding]:
    need = f"Only Spark jobs need it: install Java {JAVA_NEEDED} or newer."
    java = shutil.which("java", path=str(Path(os.environ["JAVA_HOME"], "bin"))) if "JAVA_HOME" in os.environ else None
    java = java or shutil.which("java")
    if java is None:
        yield Finding("Java", Health.NOTE, "there is none", need)
        return
    done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ANSWER_SECS, check=False)
    found = re.search(r'version "(\d+)', done.stderr + done.stdout)
    good = found is not None and int(found[1]) >= JAVA_NEEDED
    text = f"{java}, version {found[1] if found else 'unknown'}"
    yield Finding("Java", Health.GOOD if good else Health.NOTE, text, "" if good else need)


def _docker(_: Home) -> Iterator[Finding]:
    docker = shutil.which("docker")
    if docker is None:
        yield Finding("Docker", Health.NOTE, "there is none", "Only clusters of containers need it.")
        return
    command = [docker, "info", "--format", "{{.ServerVersion}} {{.Swarm.LocalNodeState}} {{.Swarm.ControlAvailable}}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_SECS, check=False)
    said = done.stdout.split()
    if done.returncode == 0 and said:
        yield Finding("Docker", Health.GOOD, f"server {said[0]}")
        yield _swarm(said[1:])
    else:
        reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        yield Finding("Docker", Health.NOTE, reason, "Only clusters of containers need it: start the Docker daemon.")


def _slurm(_: Home) -> Iterator[Finding]:
    from heron_control.schedulers.slurm_client import NEEDED, SlurmClient, SlurmError  # only this check needs it

    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        cure = "Only the cluster slurm needs them (Debian: slurm-client)."
        yield Finding(
            "Slurm", Health.NOTE, "there is none" if missing == list(NEEDED) else f"no {', '.join(missing)}", cure
        )
        return
    try:
        found = SlurmClient().examine()
    except SlurmError as error:
        yield Finding(
            "Slurm", Health.NOTE, error.message, "Only the cluster slurm needs it: see `scontrol ping`, `sinfo`."
        )
        return
    text = f"{', '.join(NEEDED)} answer ({found.version}), {found.nodes} nodes"
    if found.tracking == "proctrack/cgroup":
        yield Finding("Slurm", Health.GOOD, f"{text}, {found.tracking}")
    else:
        cure = "ProctrackType=proctrack/cgroup in slurm.conf: by another one, what user code daemonises stays behind."
        yield Finding("Slurm", Health.NOTE, f"{text}, {found.tracking}", cure)


def _kubernetes(_: Home) -> Iterator[Finding]:
    need = "Only the cluster k8s needs it: "
    if importlib.util.find_spec("kubernetes") is None:
        cure = f"{need}pip install 'heronry[kubernetes]'."
        yield Finding("Kubernetes", Health.NOTE, "its client is not installed", cure)
        return
    from heron_control.schedulers.k8s_client import KubernetesClient, own_namespace  # only this check needs it

    try:
        client = KubernetesClient(own_namespace())
    except SchedulerError as error:
        yield Finding("Kubernetes", Health.NOTE, "no cluster is known here", f"{need}{error}.")
        return
    try:
        nodes = client.nodes()
        seen = f"{len(nodes)} nodes" if nodes is not None else "its nodes are not ours to see"
        text = f"{client.version()}, {seen}, policy/{client.policy_version()}"
        if nodes is not None:
            yield Finding("Kubernetes", Health.GOOD, text)
        else:
            cure = "What a lost node ran is not replaced: allow `list nodes` (deploy/kubernetes.yml)."
            yield Finding("Kubernetes", Health.NOTE, text, cure)
    except SchedulerError as error:
        yield Finding("Kubernetes", Health.NOTE, str(error), f"{need}kubectl cluster-info.")
    finally:
        client.close()


def _swarm(said: list[str]) -> Finding:
    """Whether an api server with ``--scheduler swarm`` could run on this engine: its state, and if it is a manager."""
    need = "Only cluster swarm needs it: "
    match said:
        case ["active", "true"]:
            return Finding("Docker Swarm", Health.GOOD, "this engine is a manager of a swarm")
        case ["active", _]:
            return Finding("Docker Swarm", Health.NOTE, "this engine is a worker", f"{need}use a manager's engine.")
        case ["locked", _]:
            return Finding("Docker Swarm", Health.NOTE, "this manager is locked", f"{need}docker swarm unlock.")
        case ["error" | "pending", _]:
            return Finding("Docker Swarm", Health.NOTE, "it is not joined", f"{need}docker info says why.")
    return Finding("Docker Swarm", Health.NOTE, "there is none", f"{need}docker swarm init.")
