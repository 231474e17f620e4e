"""A real Kubernetes of two nodes on this machine, and the faults that tests can cause on a node.

The control plane and the nodes run the programs that ``deploy/k8s-setup`` has built. Each node has its own network and
mount namespace, containerd, kubelet and cgroups. The cluster cannot be reached from outside and has no route to the
outside. Every process is ended by its process id.

Addresses: 10.87.0.1 is the control plane and the name server, 10.87.0.(10+N) is node N, 10.88.N.0/24 are its Pods,
10.89.0.0/24 are the Services.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.clusters.kubernetes_pki import Pki
from tests.support.waiting import wait_until

FOLDER = Path(__file__).resolve().parents[2] / "k8s"  # the pause image, the name server
CACHE = Path(os.environ.get("HERONRY_CACHE", Path.home() / ".cache" / "heronry"), "k8s")
COMMAND_SECONDS = 600
MASTER = "10.87.0.1"
# The kubelet writes these on the host; it gets a separate copy.
_SYSCTLS = (
    "vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)  # fmt: skip
_PAUSE = "docker.io/heronry/pause:1"


def run(*command: str, check: bool = True, **arguments: Any) -> subprocess.CompletedProcess[str]:
    """Run a command; a failure includes its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS, **arguments)
    said = f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert done.returncode == 0 or not check, said
    return done


class K8sNodes:
    """Kubernetes nodes, not started yet. Node numbers start at 1."""

    def __init__(self, count: int = 2) -> None:
        self.name = f"hk{secrets.token_hex(2)}"
        self.count = count
        self.folder = Path(tempfile.mkdtemp(prefix="heronry-k8s-"))
        self.pki = Pki(self.folder / "pki", f"https://{MASTER}:6443")
        self.began = time.monotonic()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._environment = {**os.environ, "PATH": f"{CACHE / 'bin'}:{os.environ['PATH']}"}

    def lap(self, what: str) -> None:
        """Print a message with the time."""
        print(f"{time.monotonic() - self.began:6.1f} s  {what}", flush=True)

    # Commands.

    def inside(self, *command: str, check: bool = True, **arguments: Any) -> subprocess.CompletedProcess[str]:
        """Run a command on the network of the cluster."""
        return run("nsenter", f"--net=/run/netns/{self.name}", *command, check=check, **arguments)

    def kubectl(self, *arguments: str, check: bool = True, stdin: str | None = None) -> str:
        """Return the output of ``kubectl``, run as the administrator."""
        command = (str(CACHE / "bin" / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments)
        return self.inside(*command, check=check, input=stdin).stdout.strip()

    @property
    def kubeconfig(self) -> Path:
        """Return the administrator's kubeconfig."""
        return self.pki.config("admin")

    def objects(self, kinds: str, *options: str) -> list[dict[str, Any]]:
        """Return the objects of these kinds."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", kinds, "--output", "json", *options))["items"]
        return found

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Create or change objects."""
        self.kubectl(
            "apply", "--filename", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
        )

    @contextlib.contextmanager
    def on_its_network(self) -> Iterator[None]:
        """Put this thread and its child processes on the network of the cluster."""
        with open("/proc/thread-self/ns/net") as own, open(f"/run/netns/{self.name}") as ours:
            _enter(ours.fileno())
            try:
                yield
            finally:
                _enter(own.fileno())

    def explain(self) -> str:
        """Return the state of the cluster, for a failed test."""
        shown = [
            self.kubectl("get", "nodes,pods,services,configmaps", "--all-namespaces", "--output", "wide", check=False),
            self.kubectl("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp", check=False)[-6000:],
        ]
        logs = sorted((self.folder / "log").iterdir())
        shown += [f"== {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs if "node" not in log.name]
        return "\n".join(shown)

    # Start.

    def up(self) -> None:
        """Start all processes; every node is ready when this returns."""
        self._networks()
        self.pki.make(MASTER, self.count)
        self._control_plane()
        for number in range(1, self.count + 1):
            self._make_node(number)
        wait_until(lambda: all(self.is_ready(n) for n in range(1, self.count + 1)), "every node is ready")
        wait_until(lambda: self.kubectl("get", "serviceaccount", "default", check=False), "there is a service account")

    def _networks(self) -> None:
        run("ip", "netns", "add", self.name)
        self.inside("ip", "link", "set", "lo", "up")
        self.inside("ip", "link", "add", "nodes", "type", "bridge")
        self.inside("ip", "addr", "add", f"{MASTER}/24", "dev", "nodes")
        self.inside("ip", "link", "set", "nodes", "up")
        for number in range(1, self.count + 1):
            own = f"{self.name}-{number}"
            node = ("nsenter", f"--net=/run/netns/{own}")
            run("ip", "netns", "add", own)
            self.inside("ip", "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", own)
            self.inside("ip", "link", "set", f"v{number}", "master", "nodes", "up")
            for command in (
                "ip link set lo up", f"ip addr add 10.87.0.{10 + number}/24 dev eth0", "ip link set eth0 up",
                "ip link add cni0 type bridge", f"ip addr add 10.88.{number}.1/24 dev cni0", "ip link set cni0 up",
                f"ip route add 10.89.0.0/24 via {MASTER}", "sysctl -qw net.ipv4.ip_forward=1",
                "sysctl -qw net.bridge.bridge-nf-call-iptables=1",
            ):  # fmt: skip
                run(*node, *command.split())
            for other in range(1, self.count + 1):
                if other != number:
                    run(*node, *f"ip route add 10.88.{other}.0/24 via 10.87.0.{10 + other}".split())
            self.inside(*f"ip route add 10.88.{number}.0/24 via 10.87.0.{10 + number}".split())

    def _start(self, name: str, *command: str) -> int:
        """Start a process with a log file."""
        (self.folder / "log").mkdir(exist_ok=True)
        with (self.folder / "log" / name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment, start_new_session=True
            )
        return self._processes[name].pid

    def _start_here(self, name: str, *command: str) -> None:
        self._start(name, "nsenter", f"--net=/run/netns/{self.name}", *command)

    def _control_plane(self) -> None:
        client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
        self._start_here(
            "etcd", "etcd", f"--data-dir={self.folder / 'etcd'}", f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}", "--unsafe-no-fsync",
        )  # fmt: skip
        self.start_api_server()
        for name, config, *options in (
            ("kube-controller-manager", "kcm", f"--root-ca-file={self.pki.folder / 'ca.crt'}",
             f"--service-account-private-key-file={self.pki.folder / 'sa.key'}", "--use-service-account-credentials",
             "--node-monitor-grace-period=12s"),
            ("kube-scheduler", "sched"),
        ):  # fmt: skip
            given = f"{self.pki.config(config)}"
            self._start_here(
                name, name, f"--kubeconfig={given}", f"--authentication-kubeconfig={given}",
                f"--authorization-kubeconfig={given}", "--bind-address=127.0.0.1", "--leader-elect=false",
                f"--cert-dir={self.folder / name}", *options,
            )  # fmt: skip
        self._start_here("dns", sys.executable, str(FOLDER / "k8s_dns.py"), str(self.pki.folder), MASTER)

    def start_api_server(self) -> None:
        """Start or restart the API server; it answers when this returns."""
        at = self.pki.folder
        self._start_here(
            "kube-apiserver", "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--bind-address=0.0.0.0",
            f"--advertise-address={MASTER}", "--service-cluster-ip-range=10.89.0.0/24", f"--client-ca-file={at}/ca.crt",
            f"--tls-cert-file={at}/apiserver.crt", f"--tls-private-key-file={at}/apiserver.key", f"--cert-dir={at}",
            f"--service-account-key-file={at}/sa.pub", f"--service-account-signing-key-file={at}/sa.key",
            "--service-account-issuer=https://kubernetes.default.svc", f"--kubelet-client-certificate={at}/admin.crt",
            f"--kubelet-client-key={at}/admin.key", "--authorization-mode=Node,RBAC", "--allow-privileged=true",
            "--enable-admission-plugins=NodeRestriction", "--kubelet-preferred-address-types=InternalIP",
        )  # fmt: skip
        wait_until(lambda: self.kubectl("get", "--raw", "/readyz", check=False) == "ok", "the API server is ready")

    def stop_api_server(self) -> None:
        """Stop the API server."""
        self._end("kube-apiserver", signal.SIGKILL)

    # Nodes.

    def _make_node(self, number: int) -> None:
        home = self.folder / f"node{number}"
        for part in ("kubelet", "containerd", "cni/net.d", "cni/data", "sys"):
            (home / part).mkdir(parents=True)
        for group in self._cgroups(number):
            group.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            Path(f"/sys/fs/cgroup/cpuset/{self.name}-{number}", file).write_text(
                Path("/sys/fs/cgroup/cpuset", file).read_text()
            )
        network = {
            "type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True,
            "ipam": {"type": "host-local", "dataDir": f"{home}/cni/data", "routes": [{"dst": "0.0.0.0/0"}],
                     "ranges": [[{"subnet": f"10.88.{number}.0/24"}]]},
        }  # fmt: skip
        (home / "cni/net.d/10.conflist").write_text(
            json.dumps({"cniVersion": "0.3.1", "name": "k8s", "plugins": [network]})
        )
        (home / "containerd.toml").write_text(_containerd(home))
        (home / "resolv.conf").touch()
        Path("/var/lib/kubelet").mkdir(parents=True, exist_ok=True)
        Path("/run/containerd").mkdir(parents=True, exist_ok=True)
        copies = "".join(
            f"cat /proc/sys/{f} >{home}/sys/{Path(f).name}; mount --bind {home}/sys/{Path(f).name} /proc/sys/{f}\n"
            for f in _SYSCTLS
        )
        script = (
            f"set -e\nmount -t tmpfs tmpfs /var/log\nmount --bind {home}/kubelet /var/lib/kubelet\n"
            f"mount -t tmpfs tmpfs /run/containerd\n{copies}touch {home}/mounted\nexec sleep infinity"
        )
        holder = ("nsenter", f"--net=/run/netns/{self.name}-{number}", "unshare", "--mount", "--propagation", "private")
        self._start(f"node{number}", *holder, "sh", "-c", script)
        wait_until((home / "mounted").exists, f"node {number} has its mounts")
        self._start_node(number)

    def _start_node(self, number: int) -> None:
        """Start the daemons of a node."""
        home = self.folder / f"node{number}"
        self._on(number, f"containerd{number}", "containerd", "--config", f"{home}/containerd.toml")
        wait_until(lambda: self.ctr(number, "version", check=False), f"containerd of node {number} answers")
        if _PAUSE not in self.ctr(number, "images", "list", "--quiet"):
            self._load_pause(number)
        self._on(
            number, f"kube-proxy{number}", "kube-proxy", f"--kubeconfig={self.pki.config('proxy')}",
            f"--hostname-override=node{number}", "--proxy-mode=iptables", "--cluster-cidr=10.88.0.0/16",
            "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
        )  # fmt: skip
        self.start_kubelet(number)

    def start_kubelet(self, number: int) -> None:
        """Start or restart the kubelet."""
        home = self.folder / f"node{number}"
        self._on(
            number, f"kubelet{number}", "kubelet", f"--kubeconfig={self.pki.config(f'node{number}')}",
            f"--client-ca-file={self.pki.folder}/ca.crt", "--anonymous-auth=false", "--authorization-mode=Webhook",
            f"--hostname-override=node{number}", f"--node-ip=10.87.0.{10 + number}", f"--cert-dir={home}/pki",
            "--cgroup-driver=cgroupfs", f"--cgroup-root=/{self.name}-{number}", "--container-runtime=remote",
            f"--container-runtime-endpoint=unix://{home}/c.sock", f"--volume-plugin-dir={home}/plugins",
            f"--cluster-dns={MASTER}", "--cluster-domain=cluster.local", f"--resolv-conf={home}/resolv.conf",
            "--fail-swap-on=false", "--image-gc-high-threshold=100", "--image-gc-low-threshold=99",
            "--eviction-hard=memory.available<100Mi", "--node-status-update-frequency=3s", "--read-only-port=0",
            "--enforce-node-allocatable=",
        )  # fmt: skip

    def _on(self, number: int, name: str, *command: str) -> None:
        """Start a process in the namespaces of a node."""
        self._start(name, "nsenter", f"--target={self._processes[f'node{number}'].pid}", "--net", "--mount", *command)

    def ctr(self, number: int, *arguments: str, check: bool = True) -> str:
        """Return the output of a node's containerd."""
        command = ("ctr", "--address", f"{self.folder}/node{number}/c.sock", "--namespace", "k8s.io", *arguments)
        return run(*command, check=check).stdout

    def load(self, image: str) -> None:
        """Load an image of this machine's Docker engine on all nodes."""
        archive = self.folder / "image.tar"
        run("docker", "save", "--output", str(archive), image)
        for number in range(1, self.count + 1):
            self.ctr(number, "images", "import", str(archive))
        archive.unlink()

    def _load_pause(self, number: int) -> None:
        """Load the image of a Pod's first process, which waits for children and for its end: Debian's shell."""
        if not run("docker", "images", "--quiet", _PAUSE).stdout:
            run("docker", "build", "--quiet", "--tag", _PAUSE, str(FOLDER / "pause"))
        archive = self.folder / f"pause{number}.tar"
        run("docker", "save", "--output", str(archive), _PAUSE)
        self.ctr(number, "images", "import", str(archive))
        archive.unlink()

    def is_ready(self, number: int) -> bool:
        """Return True if the API server reports the node as ready."""
        shown = "{.status.conditions[?(@.type=='Ready')].status}"
        return self.kubectl("get", "node", f"node{number}", "--output", f"jsonpath={shown}", check=False) == "True"

    def cut(self, number: int) -> None:
        """Isolate a node from the network; its processes keep running."""
        self.inside("ip", "link", "set", f"v{number}", "down")

    def join(self, number: int) -> None:
        """Connect a node to the network again."""
        self.inside("ip", "link", "set", f"v{number}", "up")

    def kill_kubelet(self, number: int) -> None:
        """Kill the kubelet; its containers keep running."""
        self._end(f"kubelet{number}", signal.SIGKILL)

    def kill_node(self, number: int) -> None:
        """Power a node off: all its processes end."""
        for name in ("kubelet", "kube-proxy"):
            self._end(f"{name}{number}", signal.SIGKILL)
        self._end_pods(number)
        self._end(f"containerd{number}", signal.SIGKILL)

    # The end.

    def _cgroups(self, number: int) -> list[Path]:
        return [folder / f"{self.name}-{number}" for folder in Path("/sys/fs/cgroup").iterdir() if folder.is_dir()]

    def _end(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        process = self._processes.pop(name, None)
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _end_pods(self, number: int) -> None:
        """End all processes in the node's cgroups, and the shims connected to this node's containerd."""
        for _ in range(5):
            for file in Path(f"/sys/fs/cgroup/pids/{self.name}-{number}").rglob("cgroup.procs"):
                for pid in file.read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.1)
        socket = f"{self.folder}/node{number}/c.sock"
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = process.read_bytes().split(b"\0")
                if words[0].endswith(b"containerd-shim-runc-v2") and socket.encode() in words:
                    os.kill(int(process.parent.name), signal.SIGKILL)

    def down(self) -> None:
        """End everything, regardless of its state. Idempotent."""
        for number in range(1, self.count + 1):
            self.kill_node(number)
        for name in list(self._processes):
            self._end(name, signal.SIGTERM if name == "etcd" else signal.SIGKILL)
        for name in (self.name, *(f"{self.name}-{number}" for number in range(1, self.count + 1))):
            run("ip", "netns", "del", name, check=False)
        for number in range(1, self.count + 1):
            for group in self._cgroups(number):
                wait_until(lambda group=group: _gone(group), f"{group} is empty", 30)
        for folder in ("/var/lib/kubelet", "/run/containerd"):
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # another process uses it
        shutil.rmtree(self.folder, ignore_errors=True)


def _enter(network: int) -> None:
    """Move this thread into a network namespace (``os.setns`` came with Python 3.12)."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(network, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _gone(group: Path) -> bool:
    """Remove a cgroup and those below it, if they are empty."""
    for folder in sorted(group.rglob("*/"), key=lambda f: -len(f.parts)):
        with contextlib.suppress(OSError):
            folder.rmdir()
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


def _containerd(home: Path) -> str:
    """Return the configuration: OOM scores cannot be changed here, and AppArmor is not available."""
    names = (*(f"snapshotter.v1.{kind}" for kind in ("aufs", "btrfs", "zfs", "devmapper")), "internal.v1.opt")
    unused = ", ".join(f'"io.containerd.{name}"' for name in names)
    return f"""version = 2
root = "{home}/containerd"
state = "/run/containerd/node"
disabled_plugins = [{unused}]
[grpc]
  address = "{home}/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{_PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CACHE}/cni"
    conf_dir = "{home}/cni/net.d"
"""
