"""What the cluster ``slurm`` needs (docs/how-to/deploy/slurm.md): findings of facts that ``look_slurm`` has
gathered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heron_cli.diagnosis.findings import Finding, bad, cure_for, good, note, some

if TYPE_CHECKING:
    from heron_control.schedulers.slurm_client import SiteNode

ENGINE = "Slurm"
USABLE = ("idle", "mixed", "allocated", "completing")  # of these a job gets nodes, now or when they are free
TRACKING = "proctrack/cgroup"
_CURES = {
    "controller does not answer": "scontrol ping; sudo systemctl start slurmctld munge on its machine.",
    "munge": "sudo systemctl start munge; the key /etc/munge/munge.key is the same on all machines.",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that nodes have to see by the same path, and the network file system it is on ("" for a local disk)."""

    what: str
    path: str
    network: str


@dataclass(frozen=True, slots=True)
class SlurmFacts:
    """``nodes``: once for each of their partitions. ``partition``: what ``heron.slurm.partition`` says. ``elsewhere``:
    nodes that are another machine than this. ``store``: the URL's scheme of the state store."""

    lacking: tuple[str, ...] = ()  # of the commands
    commands: tuple[str, ...] = ()
    trouble: str = ""
    version: str = ""
    tracking: str = ""
    refused: str = ""
    nodes: tuple[SiteNode, ...] = ()
    partition: str = ""
    elsewhere: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    store: str = "files"


def controller(facts: SlurmFacts) -> Finding:
    """Whether the commands are here and are answered."""
    if facts.lacking:
        found = "there is none" if facts.lacking == facts.commands else f"no {', '.join(facts.lacking)}"
        return bad(ENGINE, found, "apt-get install slurm-client, or use a machine of the site that has them.")
    if facts.trouble:
        return bad(ENGINE, facts.trouble, cure_for(facts.trouble, _CURES, "scontrol ping; sinfo."))
    nodes = {node.name for node in facts.nodes}
    return good(ENGINE, f"{', '.join(facts.commands)} answer ({facts.version}), {len(nodes)} nodes")


def tracking(facts: SlurmFacts) -> Finding:
    """By what Slurm finds the processes of a step."""
    if facts.tracking == TRACKING:
        return good("process tracking", facts.tracking)
    cure = f"ProctrackType={TRACKING} in slurm.conf: by another one, what user code daemonises stays behind."
    return note("process tracking", facts.tracking or "unknown", cure)


def slurm_findings(facts: SlurmFacts) -> Iterator[Finding]:
    """Everything; a site that does not answer is one finding, and what is here is looked at all the same."""
    yield controller(facts)
    if not facts.lacking and not facts.trouble:
        yield tracking(facts)
        yield _nodes(facts)
        if facts.refused:
            cure = "heron config slurm set heron.slurm.account (or .partition, .qos) NAME; sacctmgr show assoc."
            yield note("queue", f"a job without options is refused: {facts.refused}", cure)
        else:
            yield good("queue", "sbatch takes jobs of this user")
    yield _store(facts)
    yield from _shared(facts)


def _nodes(facts: SlurmFacts) -> Finding:
    known = list(dict.fromkeys(node.partition for node in facts.nodes))
    if facts.partition and facts.partition not in known:
        cure = "heron config slurm set heron.slurm.partition NAME; sinfo lists them."
        return bad("nodes", f"there is no partition {facts.partition}, but {some(known) or 'none'}", cure)
    states = {node.name: node.state for node in facts.nodes if facts.partition in ("", node.partition)}
    usable = [name for name, state in states.items() if state in USABLE]
    idle = [name for name in usable if states[name] == "idle"]
    text = f"{len(idle)} of {len(states)} idle"
    lost = [f"{name} is {state}" for name, state in states.items() if name not in usable]
    cure = "sinfo -R says why; scontrol update NodeName=NODE State=RESUME; start slurmd there."
    if not usable:
        return bad("nodes", f"none can take a job: {some(lost) or 'there are none'}", cure)
    if lost:
        return note("nodes", f"{text}; {some(lost)}", cure)
    if not idle:
        return note("nodes", f"{text}: a job waits", "heron submit slurm --no-wait; squeue.")
    return good("nodes", text)


def _store(facts: SlurmFacts) -> Finding:
    if facts.store == "zookeeper" or facts.store.startswith("zookeeper+"):
        return good("store for nodes", "ZooKeeper is seen by all nodes")
    if facts.elsewhere:
        cure = "heron config slurm set heron.state.url zookeeper://HOST:2181/heronry/$USER."
        return bad("store for nodes", f"{facts.store} on this disk, which {some(facts.elsewhere)} cannot use", cure)
    return good("store for nodes", f"{facts.store}: good as long as every node is this machine")


def _shared(facts: SlurmFacts) -> Iterator[Finding]:
    """A disk of this machine may be exported to the nodes, which is not seen from here: so never BAD."""
    if not facts.elsewhere:
        return
    for place in facts.places:
        check = f"shared {place.what}"
        if place.network:
            yield good(check, f"{place.path} ({place.network})")
        else:
            cure = f"srun -N{len(facts.elsewhere)} ls -d {place.path}: all nodes must see it by this path."
            yield note(check, f"{place.path} is on a disk of this machine", cure)
