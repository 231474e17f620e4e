"""What every engine and the command line need of this machine: looks that are too small to be judged apart."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from heron_cli.address import LOCAL
from heron_cli.credentials import Login, read_credentials
from heron_cli.diagnosis.asking import ANSWER_SECONDS
from heron_cli.diagnosis.findings import Finding, bad, good, note
from heron_cli.home import Home
from heron_control.schedulers.local_processes import processes_of
from heron_control.schedulers.runtime import make_runtime_dir, runtime_base
from heron_control.schedulers.topology_folder import Homes, load_launch
from heron_runtime import cgroups
from heron_runtime.failures import Failure, NotAllowed
from heron_runtime.state import open_address, topologies
from heron_runtime.state.files import FilesStore
from heron_runtime.state.local import FOLDERS
from heron_runtime.state.store import StateStore, StoreError

PYTHON_NEEDED = (3, 11)
DISK_NEEDED_BYTES = 1 << 30
FILES_NEEDED = 1024


def python(_: Home) -> Iterator[Finding]:
    """The interpreter's version."""
    text = f"{'.'.join(str(part) for part in sys.version_info[:3])} at {sys.executable}"
    if sys.version_info[:2] >= PYTHON_NEEDED:
        yield good("Python", text)
    else:
        yield bad("Python", text, "Install Python 3.11 or newer and make the environment anew.")


def packages(_: Home) -> Iterator[Finding]:
    """What Heronry itself imports."""
    names = [re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0] for text in requires("heronry") or () if ";" not in text]
    missing = []
    for name in names:
        try:
            version(name)
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        yield bad("packages", f"missing: {', '.join(missing)}", f"pip install {' '.join(missing)}")
    else:
        yield good("packages", f"all {len(names)} are installed")


def folder(home: Home) -> Iterator[Finding]:
    """The home and what is set in it."""
    home.prepare()
    with tempfile.TemporaryFile(dir=home.root):
        yield good("home", f"{home.root} is writable")
    home.read_config()


def disk(home: Home) -> Iterator[Finding]:
    """The space that is left where the home is."""
    free = shutil.disk_usage(home.root).free
    text = f"{free / (1 << 30):.1f} GiB free"
    if free >= DISK_NEEDED_BYTES:
        yield good("disk", text)
    else:
        yield bad("disk", text, "Free some space, or set HERONRY_HOME to a larger disk.")


def store(home: Home, cluster: str = LOCAL) -> Iterator[Finding]:
    """The state store of a cluster of the home; of the local one also what stands in it and does not run."""
    address = home.store_of(cluster)
    store = open_address(address)
    store.open()
    try:
        is_files = isinstance(store, FilesStore)
        place = home.root / FOLDERS[cluster]
        damage = store.damage() if isinstance(store, FilesStore) else []
        if damage:
            yield bad("state store", damage[0], f"Stop what runs, move {place} away and submit again.")
            return
        yield good("state store", f"{place} is sound" if is_files else f"{address.url} answers")
        for name, where in _stale(home, store) if cluster == LOCAL else ():
            found = f"{name} stands in the store, but nothing of it runs"
            yield bad("stale topology", found, f"heron kill local/{where} {name}")
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


def runtime(_: Home) -> Iterator[Finding]:
    """The folder of the Unix sockets between processes of a container."""
    base = runtime_base()
    probe = base / f"probe-{os.getpid()}"
    make_runtime_dir(probe)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(probe / "mm4096.sock"))
    finally:
        shutil.rmtree(probe, ignore_errors=True)
    yield good("runtime folder", f"{base} takes Unix sockets")


def control_groups(_: Home) -> Iterator[Finding]:
    """Whether containers of ``local`` get one each."""
    above = cgroups.place()
    if above is not None:
        probe = above / f"{cgroups.PREFIX}probe-{os.getpid()}"
        probe.mkdir()
        probe.rmdir()
        yield good("control groups", f"each container of a topology gets one, in {above}")
        return
    yield note(
        "control groups",
        "none may be made here: what user code leaves behind is found by its descent and its marks alone",
        "Submit from a unit that may: systemd-run --user --scope -p Delegate=yes heron submit …",
    )


def network(_: Home) -> Iterator[Finding]:
    """The way between processes of one machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with socket.create_connection(address, timeout=ANSWER_SECONDS):
            yield good("network", "127.0.0.1 can be reached")


def clusters(home: Home) -> Iterator[Finding]:
    """Every cluster that this user has logged in to."""
    for name, login in read_credentials(home).items():
        yield cluster(name, login)


def cluster(name: str, login: Login) -> Finding:
    """Does its api server answer, and take the token?"""
    # Here, since without a login nothing needs httpx, which takes a moment.
    from heron_cli.api_client import ApiClient

    check = f"cluster {name}"
    try:
        with ApiClient(login, name) as client:
            found = client.json("GET", "/api/v1/whoami")
            ready = client.json("GET", "/readyz")
    except Failure as error:
        return bad(check, error.message, error.cure or f"heron login {name} --api {login.api}")
    until = f" until {found['expires_at']}" if found.get("expires_at") else ""
    return good(check, f"{login.api} answers, role {found['role']}{until}, {ready['topologies']} topologies")


def open_files(_: Home) -> Iterator[Finding]:
    """How many files and sockets a process may have open."""
    import resource

    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"at most {soft} a process"
    if soft == resource.RLIM_INFINITY or soft >= FILES_NEEDED:
        yield good("open files", text)
    else:
        yield note("open files", text, f"ulimit -n {FILES_NEEDED}")
