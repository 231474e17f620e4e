"""Requirements of the command line and of all engines on this machine, and of the clusters that it knows."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from heron_cli.clusters import LOCAL
from heron_cli.diagnosis.findings import Finding, bad, good, note
from heron_cli.diagnosis.probe import COMMAND_SECONDS
from heron_cli.home import Home, SavedLogin, read_credentials
from heron_control.schedulers.local import processes_of
from heron_control.schedulers.runtime import make_runtime_dir, runtime_base
from heron_control.schedulers.topology_folder import Homes, load_launch
from heron_runtime import cgroups
from heron_runtime.failures import Failure, NotAllowed
from heron_runtime.state import FOLDERS, open_address, topologies
from heron_runtime.state.files import FilesStore
from heron_runtime.state.store import StateStore, StoreError, StoreMissing

PYTHON_NEEDED = (3, 11)
DISK_NEEDED_BYTES = 1 << 30
FILES_NEEDED = 1024


def check_python(_: Home) -> Iterator[Finding]:
    """Check the version of the interpreter."""
    text = f"{'.'.join(str(part) for part in sys.version_info[:3])} at {sys.executable}"
    if sys.version_info[:2] >= PYTHON_NEEDED:
        yield good("Python", text)
    else:
        yield bad("Python", text, "Install Python 3.11 or newer, and create the environment again.")


def check_packages(_: Home) -> Iterator[Finding]:
    """Check that the packages Heronry depends on are installed."""
    names = [re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0] for text in requires("heronry") or () if ";" not in text]
    missing = []
    for name in names:
        try:
            version(name)
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        yield bad("packages", f"missing: {', '.join(missing)}", f"Run pip install {' '.join(missing)}")
    else:
        yield good("packages", f"all {len(names)} are installed")


def check_home(home: Home) -> Iterator[Finding]:
    """Check that the home folder is writable and its settings are readable."""
    home.prepare()
    with tempfile.TemporaryFile(dir=home.root):
        yield good("home", f"{home.root} is writable")
    home.read_config()


def check_disk(home: Home) -> Iterator[Finding]:
    """Check the free space of the home folder."""
    free = shutil.disk_usage(home.root).free
    text = f"{free / (1 << 30):.1f} GiB free"
    if free >= DISK_NEEDED_BYTES:
        yield good("disk", text)
    else:
        yield bad("disk", text, "Free some space, or set HERONRY_HOME to a larger disk.")


def check_store(home: Home, cluster: str = LOCAL) -> Iterator[Finding]:
    """Check the state store of a cluster of the home; for `local` also report topologies that do not run."""
    address = home.state_store(cluster)
    store = open_address(address, create=False)
    try:
        store.open()
    except StoreMissing as error:
        if Homes(home.root, cluster, shared=True).has_topologies():
            yield bad("state store", str(error), error.cure)
        else:
            yield good("state store", f"{home.root / FOLDERS[cluster]} is created by the first submit")
        return
    try:
        is_files = isinstance(store, FilesStore)
        folder = home.root / FOLDERS[cluster]
        damage = store.damage() if isinstance(store, FilesStore) else []
        if damage:
            yield bad("state store", damage[0], f"Stop all topologies, move {folder} away, and submit them again.")
            return
        yield good("state store", f"{folder} is intact" if is_files else f"{address.url} answers")
        for name, where in _stale_topologies(home, store) if cluster == LOCAL else ():
            observation = f"{name} is in the store, but none of its processes runs"
            yield bad("stale topology", observation, f"Run heron kill local/{where} {name}")
    finally:
        store.close()


def _stale_topologies(home: Home, store: StateStore) -> Iterator[tuple[str, str]]:
    """Yield name and role/environment of topologies in the store without a running process."""
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


def check_runtime_folder(_: Home) -> Iterator[Finding]:
    """Check the folder of the Unix sockets between the processes of a container."""
    base = runtime_base()
    probe = base / f"probe-{os.getpid()}"
    make_runtime_dir(probe)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(probe / "mm4096.sock"))
    finally:
        shutil.rmtree(probe, ignore_errors=True)
    yield good("runtime folder", f"{base} accepts Unix sockets")


def check_control_groups(_: Home) -> Iterator[Finding]:
    """Check that each container of ``local`` can have a control group."""
    above = cgroups.place()
    if above is not None:
        probe = above / f"{cgroups.PREFIX}probe-{os.getpid()}"
        probe.mkdir()
        probe.rmdir()
        yield good("control groups", f"available in {above}, one per container of a topology")
        return
    yield note(
        "control groups",
        "not available: leftover processes of user code are found by parent process and environment only",
        "Submit from a unit with delegation: systemd-run --user --scope -p Delegate=yes heron submit …",
    )


def check_network(_: Home) -> Iterator[Finding]:
    """Check connections between processes of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with socket.create_connection(address, timeout=COMMAND_SECONDS):
            yield good("network", "127.0.0.1 is reachable")


def check_clusters(home: Home) -> Iterator[Finding]:
    """Check each cluster that the user is logged in to."""
    for name, login in read_credentials(home).items():
        yield check_cluster(name, login)


def check_cluster(name: str, login: SavedLogin) -> Finding:
    """Check that the API server of a cluster answers and accepts the token."""
    # Imported here, since httpx is slow to import and only logins need it.
    from heron_cli.api_client import ApiClient

    check = f"cluster {name}"
    try:
        with ApiClient(login, name) as client:
            caller = client.json("GET", "/api/v1/whoami")
            ready = client.json("GET", "/readyz")
    except Failure as error:
        return bad(check, error.message, error.cure or f"Run heron login {name} --api {login.api}")
    until = f" until {caller['expires_at']}" if caller.get("expires_at") else ""
    return good(check, f"{login.api} answers, role {caller['role']}{until}, {ready['topologies']} topologies")


def check_open_files(_: Home) -> Iterator[Finding]:
    """Check the limit of open files and sockets of a process."""
    import resource

    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"at most {soft} per process"
    if soft == resource.RLIM_INFINITY or soft >= FILES_NEEDED:
        yield good("open files", text)
    else:
        yield note("open files", text, f"Run ulimit -n {FILES_NEEDED}.")
