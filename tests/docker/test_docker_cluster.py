"""One small topology on the cluster: user commands, container confinement, and refused strangers."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from heron_control.schedulers.docker_engine import DockerEngine
from heron_control.schedulers.engine import EngineError
from tests.support.clusters.compose import ROOT, TAG, ComposeCluster, docker, inside, run, stranger, wait_for_cluster

SMALL = Path(__file__).with_name("docker_small_topology.py")
NAME = "Small"
PACKAGE = Path("/var/lib/heronry/topology/package")  # in containers
BACK_SECONDS = 30.0  # limit for the restart of a container, in seconds on a loaded machine


@pytest.fixture(scope="module")
def small(cluster: ComposeCluster) -> Iterator[ComposeCluster]:
    """Yield the cluster with the topology on it."""
    cluster.submit(SMALL, NAME, NAME, {})
    cluster.lap(f"{NAME} runs")
    yield cluster
    cluster.heron("kill", "docker/tests", NAME)
    assert cluster.containers(NAME) == {}


def process(cluster: ComposeCluster, name: str) -> dict[str, Any]:
    """Return one process of the status."""
    return next(p for p in cluster.status(NAME)["processes"] if p["name"] == name)


def inspect(container: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(docker("inspect", container))[0]
    return found


def test_quick_start_of_the_guide_works_as_typed(cluster: ComposeCluster) -> None:
    """Except for the ports, and for ``make up`` and ``make down``, with which this cluster starts and ends."""
    section = (ROOT / "docs" / "how-to" / "cluster.md").read_text().split("## Quick start")[1].split("\n## ")[0]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block is not None
    lines = [line for line in block[1].splitlines() if not line.startswith(("make ", "."))]
    assert len(lines) == len(block[1].splitlines()) - 2, "make up and make down"
    script = "set -euo pipefail\n" + "\n".join(lines)
    script = script.replace(":9000", f":{cluster.api_port}").replace(":8888", f":{cluster.tracker_port}")
    path = f"{Path(sys.executable).parent}:{cluster.environment['PATH']}"
    said = run("bash", "-c", script, env={**cluster.environment, "PATH": path}).stdout
    assert "running" in said
    assert cluster.containers("RandomWordCount") == {}


def test_containers_are_named_labelled_and_shown_by_the_tracker(small: ComposeCluster) -> None:
    containers = small.containers(NAME)
    assert set(containers) == {0, 1}
    status = small.status(NAME)
    assert {c["id"]: c["host"] for c in status["containers"]} == containers
    labels = inspect(containers[1])["Config"]["Labels"]
    shown = {name: labels[f"org.heronry.{name}"] for name in ("cluster", "role", "environ", "topology", "container")}
    assert shown == {
        "cluster": small.project, "role": "tests", "environ": "default", "topology": NAME, "container": "1",
    }  # fmt: skip
    assert not labels["com.docker.compose.project"], "compose would take it for a service of its own"
    assert NAME in small.tracker("/topologies")["result"]["docker"]["tests"]["default"]
    logs = small.heron("logs", "docker/tests", NAME, "heron_container-1")
    assert "starting container_1_steady_" in logs


def test_containers_are_confined(small: ComposeCluster) -> None:
    for name in [*small.containers(NAME).values(), *small.service("tracker"), *small.service("balancer"),
                 *small.service("zookeeper"), *small.service("prometheus"), *small.service("api")]:  # fmt: skip
        host = inspect(name)["HostConfig"]
        assert host["ReadonlyRootfs"], name
        assert host["CapDrop"] == ["ALL"], name
        assert host["Memory"] > 0, name
        assert "no-new-privileges:true" in host["SecurityOpt"], name
        assert host["LogConfig"]["Config"]["max-size"] == "10m", name
        assert not host["Privileged"], name
        sockets = [b for b in host["Binds"] or [] if "docker.sock" in b]
        assert bool(sockets) == (name in small.service("api")), f"{name}: only the api holds the Docker socket"
        for bindings in (host["PortBindings"] or {}).values():
            assert {b["HostIp"] for b in bindings} == {"127.0.0.1"}, name
        rows = [row.split() for row in docker("top", name, "-eo", "pid,user,comm").splitlines()[1:]]
        # The API container's first process reads the group of the socket; that of a topology's container has become
        # Heronry's user. What remains as root only waits.
        rooted = {comm for _, user, comm in rows if user == "root"}
        begins_as_root = name in (*small.service("api"), *small.containers(NAME).values())
        assert rooted <= ({"docker-init"} if begins_as_root else set()), f"{name}: {rows}"
    assert inspect(small.containers(NAME)[1])["HostConfig"]["RestartPolicy"]["Name"] == "no"
    ask = "for p in java javac gcc cc make pip; do command -v $p && exit 1; done; exit 0"
    assert docker("run", "--rm", "--network", "none", f"heronry:{TAG}", "sh", "-c", ask) == ""


def test_secrets_are_absent_from_inspect_output_logs_and_modes(small: ComposeCluster) -> None:
    name = small.containers(NAME)[1]
    secret = inside(name, "cat", "/var/lib/heronry/topology/secret")
    assert len(secret) >= 32
    modes = inside(name, "sh", "-c", "stat -c %a /var/lib/heronry/topology/secret /var/lib/heronry/start/1/*")
    assert set(modes.split()) == {"400"}
    password = inside(name, "sh", "-c", "cut -d: -f3 /var/lib/heronry/start/1/store-credential").split()[0]
    places = [docker("inspect", name), docker("top", name, "-eo", "pid,args"), run("docker", "logs", name).stderr]
    places += [docker("inspect", api) for api in small.service("api")]
    places += [
        small.compose("logs", "api", "tracker"),
        inside(name, "cat", "/var/lib/heronry/start/1/launch.json"),
    ]
    for text in places:
        for hidden in (secret, password, small.token()):
            assert hidden not in text


def test_removed_container_is_restarted_with_a_reason(small: ComposeCluster) -> None:
    before = small.containers(NAME)
    identity = small.identity(before[0])
    docker("rm", "--force", before[1])
    began = time.monotonic()
    wait_for_cluster(lambda: small.containers(NAME) == before, "the container is there again", BACK_SECONDS)
    print(f"back after {time.monotonic() - began:.1f} s")
    wait_for_cluster(lambda: small.status(NAME)["state"] == "running", "it works again")
    back = process(small, "heron_container-1")
    assert back["restarts"] == 1
    assert "vanished" in back["last_error"]
    assert small.identity(before[0]) == identity, "nobody else was touched"


def test_restart_restarts_exactly_one_container(small: ComposeCluster) -> None:
    before = {number: small.identity(name) for number, name in small.containers(NAME).items()}
    small.heron("restart", "docker/tests", NAME, "1")
    after = {number: small.identity(name) for number, name in small.containers(NAME).items()}
    assert after[0] == before[0]
    assert after[1] != before[1]
    wait_for_cluster(lambda: small.status(NAME)["state"] == "running", "it works again")


def test_prometheus_scrapes_the_topology_and_the_trackers(small: ComposeCluster) -> None:
    login = small.compose("exec", "-T", "prometheus", "cat", "/srv/prometheus/authorization")

    def ask(query: str) -> list[Any]:
        url = f"http://127.0.0.1:{small.prometheus_port}/api/v1/query?query={query}"
        request = urllib.request.Request(url, headers={"Authorization": login})
        with urllib.request.urlopen(request, timeout=10) as answer:
            found: list[Any] = json.loads(answer.read())["data"]["result"]
        return found

    wait_for_cluster(lambda: ask(f'heron_emitted_total{{topology="{NAME}"}}'), "Prometheus has the topology's counters")
    wait_for_cluster(lambda: len(ask('up{job="trackers"}==1')) == 2, "Prometheus scrapes both trackers")


def test_password_of_prometheus_is_kept_in_a_file_of_its_own(small: ComposeCluster) -> None:
    folder = "/srv/prometheus"
    listed = small.compose("exec", "-T", "prometheus", "sh", "-c", f"stat --format '%a %U %n' {folder}/*").splitlines()
    assert listed == [f"400 prometheus {folder}/{name}" for name in ("authorization", "password", "web.yml")]
    password = small.compose("exec", "-T", "prometheus", "cat", f"{folder}/password")
    assert password not in docker("inspect", *small.service("prometheus"))
    header = small.compose("exec", "-T", "prometheus", "cat", f"{folder}/authorization")
    assert base64.b64decode(header.removeprefix("Basic ")).decode() == f"heronry:{password}"


def test_processes_without_a_secret_are_refused(small: ComposeCluster) -> None:
    """The requests come from a container on the topology's network."""
    name = small.containers(NAME)[1]
    network = inspect(name)["HostConfig"]["NetworkMode"]
    assert json.loads(docker("network", "inspect", network))[0]["Internal"], "a way out, although nobody asked for one"
    program = f"""
import http.client, os, pickle, socket, sys
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
# Garbage and a pickle to every port: closed, or ignored.
for port in {ports_of(name)}:
    for rubbish in (b"\\xff" * 4096, pickle.dumps(print), (2**31 - 1).to_bytes(4, "big") + b"x" * 64):
        with socket.create_connection(("{name}", port), 5) as s:
            s.sendall(rubbish)
            s.settimeout(1)
            try:
                while s.recv(65536):
                    pass
            except OSError:
                pass
# No program gives more rights than one has.
for folder, _, files in os.walk("/"):
    if folder.startswith(("/proc", "/sys", "/dev")):
        continue
    for file in files:
        path = os.path.join(folder, file)
        assert os.path.islink(path) or not os.lstat(path).st_mode & 0o6000, path
# The trackers show nothing of any topology to whoever has no token.
for path in ("/topologies", "/", "/topologies/container/filedata", "/events"):
    c = http.client.HTTPConnection("tracker", 8888, timeout=10)
    c.request("GET", path)
    assert c.getresponse().status == 401, path
# Nor does Prometheus, with a wrong password as without one.
for path in ("/", "/api/v1/query?query=up", "/federate?match[]=up", "/metrics", "/-/ready"):
    for headers in ({{}}, {{"Authorization": "Basic aGVyb25yeTp3cm9uZw=="}}):
        c = http.client.HTTPConnection("prometheus", 9090, timeout=10)
        c.request("GET", path, headers=headers)
        assert c.getresponse().status == 401, path
# Code only with a proof of the topology's secret.
for headers in ({{}}, {{"Authorization": "Bearer wrong", "heronry-topology": "{NAME}"}}):
    c = http.client.HTTPConnection("api", 9000, timeout=10)
    c.request("GET", "/api/v1/packages/" + "0" * 64, headers=headers)
    assert c.getresponse().status == 401
# The state store without its credential: neither read nor written.
client = KazooClient("zookeeper:2281", use_ssl=True, verify_certs=False)
client.start(20)
for act in (lambda: client.get("/heronry/topologies/{NAME}"), lambda: client.create("/heronry/topologies/evil", b"")):
    try:
        act()
    except NoAuthError:
        continue
    sys.exit("the store let a stranger in")
client.stop()
# The servers' own ports are on another network, and without TLS nobody is let in.
for port in (2181, 2888, 3888):
    try:
        socket.create_connection(("zookeeper", port), 2).close()
    except OSError:
        continue
    sys.exit(f"ZooKeeper's port {{port}} can be reached")
"""
    image = f"heronry:{TAG}"
    docker("run", "--rm", *stranger(small.project), "--network", network, image, "python", "-c", program)
    assert small.status(NAME)["state"] == "running"
    assert process(small, "heron_container-1")["restarts"] >= 0
    with pytest.raises(urllib.error.HTTPError) as refused:
        small.tracker("/topologies", host="evil.example")
    assert refused.value.code == 421
    refused.value.close()


def test_credential_of_a_container_gives_no_access_to_other_topologies(small: ComposeCluster) -> None:
    """A process beside user code uses the credential of its container to try every node of the store."""
    small.submit(SMALL, "Small", "Victim", {})
    listing = """
def below(path):
    names = store.children(path) if path.count("/") < 3 else []
    return [path, *(found for name in names for found in below(f"{path}/{name}"))]
kinds = [value for key, value in vars(paths).items() if key.isupper()]
print(json.dumps([found for kind in kinds for found in below(kind)]))
"""
    nodes = small.in_api(listing)
    others = [node for node in nodes if "Victim" in node]
    assert len(others) >= 10, nodes
    program = f"""
import sys
from pathlib import Path
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE
held = Path("/var/lib/heronry/start/1/store-credential").read_text().splitlines()
shown = [("digest", line.partition(": ")[2]) for line in held if line.startswith("topology: ")]
client = KazooClient("zookeeper:2281", auth_data=shown, use_ssl=True, verify_certs=False)
client.start(30)
own = ("/executionstate/{NAME}", "/topologies/{NAME}", "/packingplans/{NAME}")
for node in ["", *{nodes!r}]:
    path, mine = "/heronry" + node, f"{{node}}/".split("/")[2:3] == ["{NAME}"]
    attempts = [lambda: client.set_acls(path, OPEN_ACL_UNSAFE)]
    if not mine or node in own:
        attempts += [lambda: client.set(path, b"forged"), lambda: client.create(path + "/forged", b"")]
    if not mine:
        attempts += [lambda: client.get(path), lambda: client.get_children(path)]
    if node.count("/") > 1 and not mine:
        attempts += [lambda: client.delete(path)]
    for number, attempt in enumerate(attempts):
        try:
            attempt()
        except NoAuthError:
            continue
        sys.exit(f"attempt {{number}} at {{path}} was let in")
assert client.get("/heronry/topologies/{NAME}")[0]
client.stop()
"""
    try:
        inside(small.containers(NAME)[1], "python", "-c", program)
        assert set(small.in_api(listing)) >= set(others), "nothing has gone"
        for name in (NAME, "Victim"):
            assert small.status(name)["state"] == "running"
    finally:
        small.heron("kill", "docker/tests", "Victim")
    assert [node for node in small.in_api(listing) if "Victim" in node] == []


ESCAPES = (
    "soft.log", "hard.log", "pipe.log", "deep/passwd", "../secret", "x/../../secret", "/etc/passwd", "..\\secret",
    "%2e%2e/secret", "%252e%252e/secret", "soft.log\0.log", "../../start/1/store-credential",
)  # fmt: skip


def test_files_planted_in_the_log_folder_are_not_followed(small: ComposeCluster) -> None:
    """User code creates links to the secret, pipes and names that leave the folder; the servers ignore them."""
    name = small.containers(NAME)[1]
    secret = inside(name, "cat", "/var/lib/heronry/topology/secret")
    folder = "cd /var/lib/heronry/topology/log-files"
    inside(name, "sh", "-c", f"{folder} && ln -s ../secret soft.log && ln ../secret hard.log && "
           "mkfifo pipe.log && ln -s /etc deep")  # fmt: skip
    try:
        for path in ESCAPES:
            at_api = f"/api/v1/topologies/docker/tests/default/{NAME}/containers/1/file?path={quote(path)}"
            at_tracker = urlencode({"cluster": "docker", "role": "tests", "environ": "default", "topology": NAME,
                                    "container": 1, "path": path, "offset": 0, "length": -1})  # fmt: skip
            for url, headers in (
                (f"http://127.0.0.1:{small.api_port}{at_api}", {"Authorization": f"Bearer {small.token()}"}),
                (f"http://127.0.0.1:{small.tracker_port}/topologies/container/filedata?{at_tracker}", small.shown()),
            ):
                with pytest.raises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20)
                with refused.value as answer:
                    assert answer.code in (404, 422), (url, answer.code)
                    assert secret not in answer.read().decode()
    finally:
        inside(name, "sh", "-c", f"{folder} && rm soft.log hard.log pipe.log deep")


def ports_of(container: str) -> list[int]:
    """Return the TCP ports open in the container, except loopback and Docker's name server."""
    found = inside(container, "sh", "-c", "cat /proc/net/tcp /proc/net/tcp6")
    rows = [line.split() for line in found.splitlines() if ":" in line]
    listening = [row[1].rsplit(":", 1) for row in rows if row[3] == "0A"]
    ports = sorted(
        {int(port, 16) for address, port in listening if not address.endswith("0100007F") and address[-2:] != "7F"}
    )
    assert ports
    return ports


def test_status_names_an_exceeded_memory_limit(cluster: ComposeCluster) -> None:
    given = {"hog": 8, "per_second": 20, "config": {"topology.container.ram": 320 << 20}}
    cluster.heron(
        "submit", "docker/tests", str(SMALL), "Small", "--name", "Hog", "--no-wait", "--", json.dumps(given)
    )  # fmt: skip
    try:
        said = wait_for_cluster(lambda: out_of_memory(cluster), "the status names the limit")
        assert "320 MiB" in said
        wait_for_cluster(
            lambda: cluster.status("Hog")["state"] in ("degraded", "failing"), "the topology's state says so"
        )
    finally:
        cluster.heron("kill", "docker/tests", "Hog")


def out_of_memory(cluster: ComposeCluster) -> str:
    errors = [p["last_error"] or "" for p in cluster.status("Hog")["processes"]]
    return next((error for error in errors if "out of memory" in error), "")


def test_definition_too_large_for_the_state_store_is_rejected_with_the_limit(cluster: ComposeCluster) -> None:
    given = json.dumps({"ballast": 1_100_000})
    said = cluster.heron("submit", "docker/tests", str(SMALL), "Small", "--name", "Large", "--", given, code=7)
    assert re.search(r"at most 1000000 bytes in ZooKeeper, this one 11\d{5}", said.replace("\n", " ")), said
    assert cluster.containers("Large") == {}


def test_streamlet_program_runs_keeps_its_logs_and_frees_its_name(cluster: ComposeCluster, tmp_path: Path) -> None:
    text = ROOT / "examples" / "data" / "northanger_abbey.txt"
    package = tmp_path / "program"
    (package / "data").mkdir(parents=True)
    shutil.copy(ROOT / "examples" / "streamlet_word_count.py", package)
    shutil.copy(text, package / "data")
    truth = Counter(re.findall(r"[a-z']+", text.read_text().lower()))
    paths = (f"{PACKAGE}/data/{text.name}", "/var/lib/heronry/counts")
    submit = ("submit", "docker/tests", str(package), "streamlet_word_count:words", "--wait-timeout", "180")
    cluster.heron(*submit, "--", *paths)
    first = cluster.containers("words")

    def counts() -> dict[str, int]:
        """Return the last count of each word."""
        lines = inside(first[1], "sh", "-c", f"cat {paths[1]}/*.json", check=False).splitlines()
        records = [json.loads(line) for line in lines if line.endswith("}")]
        return {record["key"]: record["value"] for record in records}

    wait_for_cluster(lambda: counts() == truth, "every word is counted")
    said = cluster.heron("kill", "docker/tests", "words", "--keep-logs", both=True)
    found = re.search(r"/srv/heronry/\S*log-files", said.replace("\n", ""))
    assert found, said
    read = ("exec", "-T", "--user", "heronry", "api", "sh", "-c")
    logs = cluster.compose(*read, f"cd {found[0]} && ls && cat heron_container-1.log")
    assert {"heron_container-0.log", "topology_master-0.log", "stream_manager-1.log"} <= set(logs.split())
    assert "the topology was killed" in logs or "received a signal" in logs, "up to the very end"
    assert cluster.containers("words") == {}
    assert "words" not in docker("volume", "ls", "--quiet", "--filter", f"label=org.heronry.cluster={cluster.project}")
    cluster.submit(SMALL, "Small", "words", {})  # the same name, at once
    assert cluster.status("words")["state"] == "running"
    assert "previous" in cluster.compose(*read, f"ls {found[0]}")
    cluster.heron("kill", "docker/tests", "words")
    assert cluster.compose(*read, f"ls -d {found[0]}", check=False) == "", "nobody asked to keep these"


def test_missing_image_or_engine_is_named_with_a_remedy(tmp_path: Path) -> None:
    with (
        contextlib.closing(DockerEngine("x")) as engine,
        pytest.raises(EngineError, match=r"heronry:none .*build it with `make image`"),
    ):
        engine.require_image("heronry:none")
    with pytest.raises(EngineError, match="its socket is missing; start the engine"):
        DockerEngine("x", f"unix://{tmp_path}/docker.sock").containers()


def test_port_in_use_is_reported_before_anything_starts(cluster: ComposeCluster) -> None:
    other = ComposeCluster()
    try:
        other.environment["HERONRY_API_PORT"] = str(cluster.api_port)
        done = run("deploy/up", check=False, env=other.environment)
        assert done.returncode == 1
        assert f"port {cluster.api_port} of 127.0.0.1 is in use" in done.stderr
        assert other.left() == []
    finally:
        other.close()
