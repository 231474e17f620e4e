"""Real ZooKeeper servers for tests, from the jars that PySpark includes.

One server or an ensemble of three, on free ports of 127.0.0.1, with data in a temporary folder. A server can be killed,
stopped (SIGSTOP), continued and restarted on its data. It ends with its test process, however that ends.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from tests.support.ports import free_ports
from tests.support.waiting import wait_until

JARS = ("zookeeper-", "slf4j-api-", "netty-", "snappy-java-", "metrics-core-", "commons-io-", "commons-cli-")
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
TICK_MS = 500  # permits sessions of one second
START_SECS = 60.0


class Server:
    """Server process with its own folder. ``number`` and ``members`` (lines of zoo.cfg) are for ensembles."""

    def __init__(self, folder: Path, port: int, number: int = 0, members: str = "") -> None:
        self.folder = folder
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        data = folder / "data"
        data.mkdir(parents=True)
        (data / "myid").write_text(str(number))
        (folder / "zoo.cfg").write_text(
            f"tickTime={TICK_MS}\ninitLimit=20\nsyncLimit=10\ndataDir={data}\nclientPort={port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\nmaxClientCnxns=0\n"
            f"{members}"
        )

    def launch(self) -> None:
        """Start the process, without waiting for it to accept clients."""
        assert self.process is None
        # The kernel ends the server when the test process ends; fsync of its log would only wear the disk.
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []),
                    _java(), "-cp", _classpath(), "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                    "-Dzookeeper.forceSync=no", "-Dslf4j.internal.verbosity=ERROR", MAIN, str(self.folder / "zoo.cfg"),
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
            )  # fmt: skip

    def start(self) -> None:
        """Start the server and wait until it accepts clients."""
        self.launch()
        self.wait_serving()

    def wait_serving(self) -> None:
        """Wait until it accepts clients ("ruok" is answered long before that)."""
        wait_until(self.mode, f"the server on {self.port} to serve: {self._last_words()}", START_SECS)

    def mode(self) -> str:
        """Return standalone, leader or follower; empty while it does not accept clients."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
                connection.sendall(b"srvr")
                connection.shutdown(socket.SHUT_WR)
                answer = b""
                while data := connection.recv(4096):
                    answer += data
        except OSError:
            return ""
        lines = [line for line in answer.decode().splitlines() if line.startswith("Mode: ")]
        return lines[0].removeprefix("Mode: ") if lines else ""

    def kill(self) -> None:
        """Kill the server with kill -9."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """Stop the server (SIGSTOP), so that it hangs."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Resume the server (SIGCONT)."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def _last_words(self) -> str:
        log = self.folder / "server.log"
        return log.read_text(errors="replace")[-500:] if log.exists() else "no log"


class Ensemble:
    """One or three servers that act as one."""

    def __init__(self, folder: Path, size: int = 1) -> None:
        client, peer, election = free_ports(size), free_ports(size), free_ports(size)
        members = "".join(f"server.{n + 1}=127.0.0.1:{peer[n]}:{election[n]}\n" for n in range(size) if size > 1)
        self.servers = [Server(folder / f"server{n + 1}", client[n], n + 1, members) for n in range(size)]

    @property
    def hosts(self) -> str:
        """Return the host list of a store's URL."""
        return ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def url(self, root: str = "/heronry") -> str:
        """Return the URL of a store."""
        return f"zookeeper://{self.hosts}{root}"

    def start(self) -> None:
        """Start all servers that do not run, and wait until all accept clients."""
        for server in self.servers:
            if server.process is None:
                server.launch()
        for server in self.servers:
            server.wait_serving()

    def leader(self) -> Server:
        """Return the current leader."""
        found: list[Server] = []

        def look() -> bool:
            found[:] = [server for server in self.servers if server.mode() in ("leader", "standalone")]
            return len(found) == 1

        wait_until(look, "the ensemble to have one leader")
        return found[0]

    def kill(self) -> None:
        """Kill all servers."""
        for server in self.servers:
            server.kill()


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    assert found, "there is no java; see deploy/java-setup"
    return found


def _classpath() -> str:
    found = importlib.util.find_spec("pyspark")
    assert found is not None, "pyspark is not installed; see deploy/spark-setup"
    assert found.submodule_search_locations
    folder = Path(found.submodule_search_locations[0], "jars")
    return os.pathsep.join(str(jar) for jar in sorted(folder.glob("*.jar")) if jar.name.startswith(JARS))
