"""What is looked at for which engine, in what order. Each look has a bound of time (``asking.within``), and one that
fails or hangs is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from urllib.parse import urlsplit

from heron_cli.address import LOCAL, SLURM
from heron_cli.credentials import Login, read_credentials
from heron_cli.diagnosis import judge_docker, judge_k8s, judge_slurm, judge_spark, machine
from heron_cli.diagnosis.asking import within
from heron_cli.diagnosis.findings import Finding, note, optional
from heron_cli.home import Home
from heron_runtime.failures import NotFound, did_you_mean, listing

Look = Callable[[Home], Iterable[Finding]]
Check = tuple[str, Look]

_BASE: tuple[Check, ...] = (
    ("Python", machine.python),
    ("packages", machine.packages),
    ("home", machine.folder),
    ("disk", machine.disk),
)
_LOCAL: tuple[Check, ...] = (
    ("state store", machine.store),
    ("runtime folder", machine.runtime),
    ("control groups", machine.control_groups),
    ("network", machine.network),
)


def _docker(judge: Callable[[judge_docker.DockerFacts], Iterable[Finding]], _: Home) -> Iterable[Finding]:
    from heron_cli.diagnosis import look_docker

    return judge(look_docker.look())


def _slurm(home: Home) -> Iterable[Finding]:
    from heron_cli.diagnosis import look_slurm

    return judge_slurm.slurm_findings(look_slurm.look(home))


def _k8s(_: Home) -> Iterable[Finding]:
    from heron_cli.diagnosis import look_k8s

    return judge_k8s.k8s_findings(look_k8s.look())


def _spark(_: Home) -> Iterable[Finding]:
    from heron_cli.diagnosis import look_spark

    return judge_spark.spark_findings(look_spark.look())


#: What each engine wants beside the base.
ENGINES: Mapping[str, tuple[Check, ...]] = {
    LOCAL: (*_LOCAL, ("open files", machine.open_files)),
    "docker": (("Docker", partial(_docker, judge_docker.docker_findings)),),
    "compose": (("Docker", partial(_docker, judge_docker.compose_findings)),),
    "swarm": (("Docker", partial(_docker, judge_docker.swarm_findings)),),
    SLURM: (("state store", partial(machine.store, cluster=SLURM)), ("Slurm", _slurm)),
    "k8s": (("Kubernetes", _k8s),),
    "spark": (("Spark", _spark),),
}
_OF_A_SERVER = ("docker", "compose", "swarm", "k8s")  # the machine that matters is the api server's
_HERE = ("127.0.0.1", "localhost", "::1")


def examine(home: Home, name: str = "") -> Iterator[Finding]:
    """Every check in turn: for the cluster or engine of this name; without one, of everything that may be of use here,
    where engines are optional. Raises NotFound for a name that is neither."""
    if not name:
        return _everything(home)
    logins = read_credentials(home)
    login = logins.get(name)
    engine = name if name in ENGINES else login.cluster if login else ""
    if name not in ENGINES and login is None:
        known = (*ENGINES, *logins)
        raise NotFound(
            f"there is no engine or cluster {name!r}{did_you_mean(name, known)}", f"There is {listing(known)}."
        )
    return _of_engine(home, name, engine, login)


def _of_engine(home: Home, name: str, engine: str, login: Login | None) -> Iterator[Finding]:
    for check, look in _BASE:
        yield from within(check, partial(look, home))
    if login is not None:
        yield from within(f"cluster {name}", lambda: [machine.cluster(name, login)])
        host = urlsplit(login.api).hostname or ""
        if engine in _OF_A_SERVER and host not in _HERE:
            yield note(engine, f"its engine is where {host} is, and was not looked at", f"heron doctor {engine} there.")
            return
    for check, look in ENGINES.get(engine, ()):
        yield from within(check, partial(look, home))


def _everything(home: Home) -> Iterator[Finding]:
    for check, look in (*_BASE, *_LOCAL, ("clusters", machine.clusters), ("open files", machine.open_files)):
        yield from within(check, partial(look, home))
    for check, who, brief in _BRIEFLY:
        yield from (optional(finding, who) for finding in within(check, partial(brief, home)))


def _java_alone(_: Home) -> Iterator[Finding]:
    from heron_cli.diagnosis import look_spark

    yield judge_spark.java(look_spark.look())


def _docker_briefly(_: Home) -> Iterator[Finding]:
    from heron_cli.diagnosis import look_docker

    facts = look_docker.look(whole=False)
    yield optional(judge_docker.engine(facts), "a cluster of containers")
    if not facts.trouble:
        yield judge_docker.member(facts)


def _slurm_briefly(home: Home) -> Iterator[Finding]:
    from heron_cli.diagnosis import look_slurm

    facts = look_slurm.look(home)
    yield judge_slurm.controller(facts)
    if not facts.lacking and not facts.trouble:
        yield judge_slurm.tracking(facts)


def _k8s_briefly(_: Home) -> Iterator[Finding]:
    from heron_cli.diagnosis import look_k8s

    yield judge_k8s.cluster(look_k8s.look(whole=False))


_BRIEFLY: tuple[tuple[str, str, Look], ...] = (
    ("Java", "a Spark job", _java_alone),
    ("Docker", "cluster swarm", _docker_briefly),
    ("Slurm", "cluster slurm", _slurm_briefly),
    ("Kubernetes", "cluster k8s", _k8s_briefly),
)
