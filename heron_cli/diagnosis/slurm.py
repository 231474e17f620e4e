"""Requirements of the cluster ``slurm``.

``collect_slurm_facts`` runs Slurm's own commands as the scheduler does, and submits nothing. The functions ``judge_*``
turn these facts into findings. See docs/how-to/deploy/slurm.md.
"""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from heron_cli.clusters import SLURM
from heron_cli.diagnosis.findings import Finding, bad, cure_for, good, note, shorten
from heron_cli.home import Home
from heron_control.schedulers.slurm import NEEDED, SlurmClient, SlurmError
from heron_control.schedulers.slurm_plan import strangers
from heron_runtime.model.settings import Keys
from heron_runtime.state.filesystem import network_file_system

if TYPE_CHECKING:
    from heron_control.schedulers.slurm import SiteNode

ENGINE = "Slurm"
USABLE = ("idle", "mixed", "allocated", "completing")  # a job gets such nodes now or when they are free
TRACKING = "proctrack/cgroup"
_CURES = {
    "controller does not answer": "Run scontrol ping, and sudo systemctl start slurmctld munge on its machine.",
    "munge": "Run sudo systemctl start munge; all machines need the same /etc/munge/munge.key.",
}


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """A folder that all nodes need at the same path, and its network file system ("" for a local disk)."""

    what: str
    path: str
    network: str


@dataclass(frozen=True, slots=True)
class SlurmFacts:
    """Facts about a Slurm site.

    Attributes:
        missing_commands: Commands of Slurm that are not installed here.
        commands: Commands of Slurm that are needed.
        trouble: Why the controller does not answer.
        tracking: ProctrackType, the way in which Slurm finds the processes of a step.
        refused: Why sbatch rejects a job without options.
        nodes: Each node once per partition.
        partition: Value of ``heron.slurm.partition``.
        elsewhere: Hosts of nodes other than this machine.
        store: Scheme of the URL of the state store.
    """

    missing_commands: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    trouble: str = ""
    version: str = ""
    tracking: str = ""
    refused: str = ""
    nodes: tuple[SiteNode, ...] = ()
    partition: str = ""
    elsewhere: tuple[str, ...] = ()
    shared_folders: tuple[SharedFolder, ...] = ()
    store: str = "files"


def judge_controller(facts: SlurmFacts) -> Finding:
    """Check that the commands are installed and the controller answers."""
    if facts.missing_commands:
        observation = (
            "not installed"
            if facts.missing_commands == facts.commands
            else f"not found: {', '.join(facts.missing_commands)}"
        )
        return bad(
            ENGINE, observation, "Run apt-get install slurm-client, or use a machine of the site that has the commands."
        )
    if facts.trouble:
        return bad(ENGINE, facts.trouble, cure_for(facts.trouble, _CURES, "Run scontrol ping and sinfo."))
    nodes = {node.name for node in facts.nodes}
    return good(ENGINE, f"{', '.join(facts.commands)} answer ({facts.version}), {len(nodes)} nodes")


def judge_process_tracking(facts: SlurmFacts) -> Finding:
    """Check how Slurm finds the processes of a step."""
    if facts.tracking == TRACKING:
        return good("process tracking", facts.tracking)
    cure = f"Set ProctrackType={TRACKING} in slurm.conf: otherwise daemons of user code survive the job."
    return note("process tracking", facts.tracking or "unknown", cure)


def judge_slurm(facts: SlurmFacts) -> Iterator[Finding]:
    """Judge all facts. If the site does not answer, the local facts are still judged."""
    yield judge_controller(facts)
    if not facts.missing_commands and not facts.trouble:
        yield judge_process_tracking(facts)
        yield _judge_nodes(facts)
        if facts.refused:
            cure = "Run heron config slurm set heron.slurm.account (or .partition, .qos) NAME; see sacctmgr show assoc."
            yield note("queue", f"a job without options is rejected: {facts.refused}", cure)
        else:
            yield good("queue", "sbatch accepts jobs of this user")
    yield _judge_store(facts)
    yield from _judge_shared_folders(facts)


def _judge_nodes(facts: SlurmFacts) -> Finding:
    partitions = list(dict.fromkeys(node.partition for node in facts.nodes))
    if facts.partition and facts.partition not in partitions:
        cure = "Run heron config slurm set heron.slurm.partition NAME; sinfo lists the partitions."
        return bad("nodes", f"unknown partition {facts.partition}; known: {shorten(partitions) or 'none'}", cure)
    states = {node.name: node.state for node in facts.nodes if facts.partition in ("", node.partition)}
    usable = [name for name, state in states.items() if state in USABLE]
    idle = [name for name in usable if states[name] == "idle"]
    text = f"{len(idle)} of {len(states)} idle"
    lost = [f"{name} is {state}" for name, state in states.items() if name not in usable]
    cure = "See sinfo -R; run scontrol update NodeName=NODE State=RESUME; start slurmd on the node."
    if not usable:
        return bad("nodes", f"no node can run a job: {shorten(lost) or 'the site has no nodes'}", cure)
    if lost:
        return note("nodes", f"{text}; {shorten(lost)}", cure)
    if not idle:
        return note("nodes", f"{text}: a job waits", "Use heron submit slurm --no-wait, and see squeue.")
    return good("nodes", text)


def _judge_store(facts: SlurmFacts) -> Finding:
    if facts.store == "zookeeper" or facts.store.startswith("zookeeper+"):
        return good("store for nodes", "ZooKeeper is reachable from all nodes")
    if facts.elsewhere:
        cure = "Run heron config slurm set heron.state.url zookeeper://HOST:2181/heronry/$USER."
        return bad("store for nodes", f"{facts.store} on a disk that {shorten(facts.elsewhere)} cannot use", cure)
    return good("store for nodes", f"{facts.store}: sufficient while this machine is the only node")


def _judge_shared_folders(facts: SlurmFacts) -> Iterator[Finding]:
    """Judge folders that all nodes need. A local disk is only a note, since it may be exported to the nodes."""
    if not facts.elsewhere:
        return
    for folder in facts.shared_folders:
        check = f"shared {folder.what}"
        if folder.network:
            yield good(check, f"{folder.path} ({folder.network})")
        else:
            cure = f"Run srun -N{len(facts.elsewhere)} ls -d {folder.path}: all nodes need it at this path."
            yield note(check, f"{folder.path} is on a disk of this machine", cure)


def collect_slurm_facts(home: Home) -> SlurmFacts:
    """Return facts about the site that this machine's commands speak to.

    Raises:
        Failure: The settings in the home folder cannot be read.
    """
    home.prepare()
    settings = home.read_config().get(SLURM, {})
    base = SlurmFacts(
        commands=NEEDED,
        partition=str(settings.get(Keys.HERON_SLURM_PARTITION.name) or ""),
        store=urlsplit(home.state_store(SLURM).url).scheme,
    )
    missing = tuple(name for name in NEEDED if shutil.which(name) is None)
    if missing:
        return replace(base, missing_commands=missing)
    try:
        site = SlurmClient().examine()
    except SlurmError as error:
        return replace(base, trouble=error.message)
    hosts = {node.host for node in site.nodes}
    folders = (("home", home.root), ("environment", Path(sys.prefix)))
    return replace(
        base, version=site.version, tracking=site.tracking, refused=site.refused, nodes=site.nodes,
        elsewhere=tuple(strangers(hosts, socket.gethostname())),
        shared_folders=tuple(SharedFolder(what, str(path), network_file_system(path) or "") for what, path in folders),
    )  # fmt: skip
