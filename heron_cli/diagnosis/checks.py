"""The checks of ``heron doctor``: which ones each engine has, and in which order they run.

Each check has a time limit (``probe.run_check``). A check that fails or does not end in time is itself a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from urllib.parse import urlsplit

from heron_cli.clusters import LOCAL, SLURM
from heron_cli.diagnosis import docker, kubernetes, machine, slurm, spark
from heron_cli.diagnosis.findings import Finding, note, optional
from heron_cli.diagnosis.probe import run_check
from heron_cli.home import Home, SavedLogin, read_credentials
from heron_runtime.failures import NotFound, did_you_mean, listing

Probe = Callable[[Home], Iterable[Finding]]
Check = tuple[str, Probe]


def _docker(judge: Callable[[docker.DockerFacts], Iterable[Finding]], _: Home) -> Iterable[Finding]:
    return judge(docker.collect_docker_facts())


def _slurm(home: Home) -> Iterable[Finding]:
    return slurm.judge_slurm(slurm.collect_slurm_facts(home))


def _kubernetes(_: Home) -> Iterable[Finding]:
    return kubernetes.judge_kubernetes(kubernetes.collect_kubernetes_facts())


def _spark(_: Home) -> Iterable[Finding]:
    return spark.judge_spark(spark.collect_spark_facts())


_BASE: tuple[Check, ...] = (
    ("Python", machine.check_python),
    ("packages", machine.check_packages),
    ("home", machine.check_home),
    ("disk", machine.check_disk),
)
_LOCAL: tuple[Check, ...] = (
    ("state store", machine.check_store),
    ("runtime folder", machine.check_runtime_folder),
    ("control groups", machine.check_control_groups),
    ("network", machine.check_network),
)
#: The checks of each engine, in addition to the base.
ENGINES: Mapping[str, tuple[Check, ...]] = {
    LOCAL: (*_LOCAL, ("open files", machine.check_open_files)),
    "docker": (("Docker", partial(_docker, docker.judge_docker)),),
    "compose": (("Docker", partial(_docker, docker.judge_compose)),),
    "swarm": (("Docker", partial(_docker, docker.judge_swarm)),),
    SLURM: (("state store", partial(machine.check_store, cluster=SLURM)), ("Slurm", _slurm)),
    "k8s": (("Kubernetes", _kubernetes),),
    "spark": (("Spark", _spark),),
}
_SERVER_ENGINES = ("docker", "compose", "swarm", "k8s")  # these run on the machine of the API server
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def examine(home: Home, name: str = "") -> Iterator[Finding]:
    """Run the checks of a cluster or engine, one after the other.

    Args:
        home: The home folder of the user.
        name: A cluster or engine. Without a name all checks run, and a missing engine is only a note.

    Raises:
        NotFound: `name` is unknown.
    """
    if not name:
        return _examine_all(home)
    logins = read_credentials(home)
    login = logins.get(name)
    engine = name if name in ENGINES else login.cluster if login else ""
    if name not in ENGINES and login is None:
        known = (*ENGINES, *logins)
        raise NotFound(f"unknown engine or cluster {name!r}{did_you_mean(name, known)}", f"Known: {listing(known)}.")
    return _examine_engine(home, name, engine, login)


def _examine_engine(home: Home, name: str, engine: str, login: SavedLogin | None) -> Iterator[Finding]:
    for check, probe in _BASE:
        yield from run_check(check, partial(probe, home))
    if login is not None:
        yield from run_check(f"cluster {name}", lambda: [machine.check_cluster(name, login)])
        host = urlsplit(login.api).hostname or ""
        if engine in _SERVER_ENGINES and host not in _LOOPBACK:
            yield note(engine, f"not checked: the engine runs on {host}", f"Run heron doctor {engine} there.")
            return
    for check, probe in ENGINES.get(engine, ()):
        yield from run_check(check, partial(probe, home))


def _examine_all(home: Home) -> Iterator[Finding]:
    more: tuple[Check, ...] = (("clusters", machine.check_clusters), ("open files", machine.check_open_files))
    for check, probe in (*_BASE, *_LOCAL, *more):
        yield from run_check(check, partial(probe, home))
    for check, user, brief in _OPTIONAL:
        yield from (optional(finding, user) for finding in run_check(check, partial(brief, home)))


def _java_briefly(_: Home) -> Iterator[Finding]:
    yield spark.judge_java(spark.collect_spark_facts())


def _docker_briefly(_: Home) -> Iterator[Finding]:
    facts = docker.collect_docker_facts(complete=False)
    yield optional(docker.judge_engine(facts), "a cluster of containers")
    if not facts.trouble:
        yield docker.judge_swarm_membership(facts)


def _slurm_briefly(home: Home) -> Iterator[Finding]:
    facts = slurm.collect_slurm_facts(home)
    yield slurm.judge_controller(facts)
    if not facts.missing_commands and not facts.trouble:
        yield slurm.judge_process_tracking(facts)


def _kubernetes_briefly(_: Home) -> Iterator[Finding]:
    yield kubernetes.judge_cluster(kubernetes.collect_kubernetes_facts(complete=False))


_OPTIONAL: tuple[tuple[str, str, Probe], ...] = (
    ("Java", "a Spark job", _java_briefly),
    ("Docker", "cluster swarm", _docker_briefly),
    ("Slurm", "cluster slurm", _slurm_briefly),
    ("Kubernetes", "cluster k8s", _kubernetes_briefly),
)
