"""One real ZooKeeper server for benchmarks, from the jars that PySpark brings along, and what it says of itself."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import psutil

JARS = ("zookeeper-", "slf4j-api-", "netty-", "snappy-java-", "metrics-core-", "commons-io-", "commons-cli-")
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
START_SECONDS = 60.0
TICK_MS = 2000


class NoServer(Exception):
    """There is no ZooKeeper here."""


def figures_in(text: str) -> dict[str, float]:
    """The answer of ``mntr``: a name, a tab and a value each line; values that are no numbers are left out."""
    found = {}
    for line in text.splitlines():
        name, tab, value = line.partition("\t")
        try:
            if tab:
                found[name.removeprefix("zk_")] = float(value)
        except ValueError:
            continue
    return found


class ZookeeperServer:
    """Listens on a free port of ``host``; ends with this process, however that ends."""

    def __init__(self, folder: Path, host: str = "127.0.0.1", heap_mib: int = 256) -> None:
        """Start it, and wait until it serves. Raises NoServer."""
        with socket.create_server((host, 0)) as free:
            self.port: int = free.getsockname()[1]
        self.host = host
        data = folder / "data"
        data.mkdir(parents=True)
        (folder / "zoo.cfg").write_text(
            f"tickTime={TICK_MS}\ndataDir={data}\nclientPort={self.port}\nclientPortAddress={host}\n"
            "admin.enableServer=false\n4lw.commands.whitelist=srvr,mntr\nmaxClientCnxns=0\n"
        )
        command = [
            *(["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []),
            _java(), "-cp", _classpath(), f"-Xmx{heap_mib}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Dslf4j.internal.verbosity=ERROR", "-Dzookeeper.forceSync=no", MAIN, str(folder / "zoo.cfg"),
        ]  # fmt: skip
        with (folder / "server.log").open("ab") as log:
            # In a session of its own: Ctrl-C is for us, and the store is needed until all is killed.
            self._process = psutil.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        while "Mode: " not in self._ask("srvr"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise NoServer(f"ZooKeeper does not serve: {(folder / 'server.log').read_text()[-500:]}")
            time.sleep(0.05)

    @property
    def url(self) -> str:
        """That of a state store."""
        return f"zookeeper://{self.host}:{self.port}/heronry"

    def figures(self) -> dict[str, float]:
        """Its own: znode_count, watch_count, num_alive_connections, packets_received, …"""
        return figures_in(self._ask("mntr"))

    def cpu_seconds(self) -> float:
        """So far."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def _ask(self, word: str) -> str:
        try:
            with socket.create_connection((self.host, self.port), 5.0) as connection:
                connection.sendall(word.encode())
                connection.shutdown(socket.SHUT_WR)
                answer = b""
                while data := connection.recv(65_536):
                    answer += data
        except OSError:
            return ""
        return answer.decode()


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not found:
        raise NoServer("there is no java; see deploy/java-setup")
    return found


def _classpath() -> str:
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise NoServer("pyspark, whose jars have ZooKeeper, is not installed; see deploy/spark-setup")
    folder = Path(found.submodule_search_locations[0], "jars")
    return os.pathsep.join(str(jar) for jar in sorted(folder.glob("*.jar")) if jar.name.startswith(JARS))
