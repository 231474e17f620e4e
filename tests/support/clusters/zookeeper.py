"""A topology of the local cluster whose state is in ZooKeeper, set by ``config.yaml`` and a credential file."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import psutil

from tests.support.fault_cluster import FaultCluster
from tests.support.servers.zookeeper import Ensemble
from tests.support.waiting import wait_until

READER = "reader: tracker:another-password\n"
CREDENTIAL = f"cluster: heronry:a-password-of-tests\n{READER}"
SLOW = {"topology.max.spout.pending": 40}  # all servers and processes share a machine that may be busy


class ZookeeperCluster(FaultCluster):
    """``FaultCluster`` with the state below ``root`` on the servers."""

    def __init__(self, servers: Ensemble, root: str, *, config: dict[str, Any], session_timeout_secs: float) -> None:
        super().__init__(1, {**SLOW, **config}, {"heron.state.session.timeout.secs": session_timeout_secs})
        self.session_timeout_secs = session_timeout_secs
        self.home.mkdir(mode=0o700)
        credential = self.home / "zookeeper-credential"
        credential.write_text(CREDENTIAL)
        credential.chmod(0o400)
        self.heron("config", "local", "set", "heron.state.url", servers.url(root))
        self.heron("config", "local", "set", "heron.state.credential.file", credential.name)

    def nodes(self) -> list[str]:
        """Return the nodes of this topology; those of killed processes disappear with their sessions."""
        wait_until(lambda: not super(ZookeeperCluster, self).nodes(), "the state store is empty")
        return []

    def masters(self) -> dict[int, str]:
        """Return the names of all living topology masters, by pid."""
        return {process.pid: process.cmdline()[0].split(":")[-1] for process in self.titled("topology_master-")}

    def secrets_shown(self) -> list[str]:
        """Return where a password can be read: command lines, environments, launch.json, logs."""
        found = []
        for process in self.titled():
            with contextlib.suppress(psutil.Error):
                text = " ".join(process.cmdline()) + " ".join(process.environ().values())
                if "-password" in text:
                    found.append(process.name())
        files = [self.place / "launch.json", *self.place.glob("log-files/*")]
        return found + [file.name for file in files if "-password" in file.read_text(errors="replace")]


Meanwhile = Callable[[ZookeeperCluster], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def nothing(_: ZookeeperCluster) -> Iterator[None]:
    """Do nothing."""
    yield


@contextlib.contextmanager
def zookeeper_cluster(
    servers: Ensemble,
    root: str,
    *,
    session_timeout_secs: float,
    in_submit: Meanwhile = nothing,
    in_kill: Meanwhile = nothing,
    **config: Any,
) -> Iterator[ZookeeperCluster]:
    """Yield a submitted topology; it is killed at the end, and nothing of it may be left."""
    cluster = ZookeeperCluster(servers, root, config=config, session_timeout_secs=session_timeout_secs)
    try:
        with in_submit(cluster):
            cluster.submit()
        yield cluster
        with in_kill(cluster):
            cluster.kill()
    except BaseException:
        print(cluster.explain())
        raise
    finally:
        cluster.clean_up()
        cluster.flow.close()
        if not os.environ.get("HERONRY_FAULTS_KEEP"):
            shutil.rmtree(cluster.folder, ignore_errors=True)
