"""Simulated hosts: a network namespace for each container of a topology, on a bridge in the driver's own namespace.

The driver runs below ``unshare --net`` (``in_own_network``), so nothing here touches the network of the machine, and
bridge and cables are gone when its last process is. Namespaces have names, in /run/netns, since a scheduler has to find
them; ``Hosts.close`` removes them, and so does the next ``Hosts`` for a driver that was killed. Processors, memory and
disk are those of the one machine: what is simulated is that packets between containers leave a host.

Packets are counted where each host's cable meets the bridge. Cables carry packets of at most 1 500 bytes, as those of
real hosts do (``gso_max_segs``: segmentation is not put off until after the counter).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

NETWORK = "10.77"  # in a namespace of our own: no other network is in reach
HUB = f"{NETWORK}.0.1"
PREFIX_VARIABLE = "HERONRY_BENCH_HOSTS"  # the prefix of the namespaces, for who starts containers in them
INSIDE_VARIABLE = "HERONRY_BENCH_INSIDE"
NAMESPACES = Path("/run/netns")
MARK = "hrb"
CABLE = "host"
BRIDGE = "hub"
HUB_STATION = "02:77:00:00:00:01"


class NoHosts(Exception):
    """Hosts cannot be simulated here."""


@dataclass(frozen=True)
class Traffic:
    """What the hosts have sent so far, in packets and bytes, and of that what was for the driver's own address (the
    state store, commands)."""

    packets: int = 0
    bytes: int = 0
    hub_packets: int = 0
    hub_bytes: int = 0

    def since(self, earlier: Traffic) -> Traffic:
        """What came after an earlier moment."""
        return Traffic(
            self.packets - earlier.packets, self.bytes - earlier.bytes,
            self.hub_packets - earlier.hub_packets, self.hub_bytes - earlier.hub_bytes,
        )  # fmt: skip


def traffic_in(text: str) -> Traffic:
    """The text of /proc/net/dev of the driver's namespace: what the cables' bridge ends have received."""
    packets = size = hub_packets = hub_bytes = 0
    for line in text.splitlines():
        name, colon, figures = line.partition(":")
        name = name.strip()
        if not colon:
            continue
        received_bytes, received_packets = (int(figure) for figure in figures.split()[:2])
        if name == BRIDGE:
            hub_packets, hub_bytes = received_packets, received_bytes
        elif name.startswith(CABLE) and name.removeprefix(CABLE).isdecimal():
            packets += received_packets
            size += received_bytes
    return Traffic(packets, size, hub_packets, hub_bytes)


def traffic() -> Traffic:
    """Now."""
    return traffic_in(Path("/proc/self/net/dev").read_text())


def namespace(prefix: str, number: int) -> str:
    """The namespace of the host of a container."""
    return f"{prefix}-{number}"


def address(number: int) -> str:
    """The address of the host of a container."""
    return f"{NETWORK}.{1 + number // 200}.{1 + number % 200}"


def station(number: int) -> str:
    """The hardware address of a host."""
    return f"02:77:00:01:{number // 256:02x}:{number % 256:02x}"


def in_own_network(module: str) -> None:
    """Begin this program again in a network namespace of its own, unless it is in one. Raises NoHosts."""
    if os.environ.get(INSIDE_VARIABLE):
        return
    missing = [name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None]
    if os.geteuid() or missing:
        why = f"{', '.join(missing)} are missing" if missing else "this user is not root"
        raise NoHosts(f"network namespaces cannot be made: {why}; run as root, with util-linux and iproute2")
    os.environ[INSIDE_VARIABLE] = "1"
    os.execvp("unshare", ["unshare", "--net", sys.executable, "-m", module, *sys.argv[1:]])


class Hosts:
    """``number`` hosts, for containers 0 to ``number`` - 1; the driver is at ``HUB``."""

    def __init__(self, number: int) -> None:
        self.prefix = f"{MARK}{os.getpid()}"
        self.number = number
        remove_forgotten()
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        names = [namespace(self.prefix, container) for container in range(self.number)]
        _batch(f"netns add {name}" for name in names)
        lines = [f"link add {BRIDGE} address {HUB_STATION} type bridge", f"addr add {HUB}/16 dev {BRIDGE}"]
        lines += ["link set lo up", f"link set {BRIDGE} addrgenmode none up"]
        for container, name in enumerate(names):
            near, mine = f"{CABLE}{container}", f"name eth0 address {station(container)} gso_max_segs 1"
            lines.append(f"link add {near} gso_max_segs 1 type veth peer {mine} netns {name}")
            lines.append(f"link set {near} addrgenmode none master {BRIDGE} up")
        _batch([*lines, *self._neighbours(BRIDGE)])
        for container, name in enumerate(names):
            inside = [f"addr add {address(container)}/16 dev eth0", "link set lo up"]
            inside += ["link set eth0 addrgenmode none up", f"neigh add {HUB} lladdr {HUB_STATION} dev eth0"]
            _batch([*inside, *self._neighbours("eth0", container)], name)

    def _neighbours(self, device: str, own: int = -1) -> list[str]:
        """All know where all are: a kernel has one table of what it has asked for (1 024 entries), not one for each
        namespace, and 33 hosts that ask for each other overflow it."""
        others = (container for container in range(self.number) if container != own)
        return [f"neigh add {address(number)} lladdr {station(number)} dev {device}" for number in others]

    def close(self) -> None:
        """Remove the namespaces, and with them the cables, and the bridge."""
        cables = [f"link del {CABLE}{container}" for container in range(self.number)]
        names = [namespace(self.prefix, container) for container in range(self.number)]
        links = "\n".join([*cables, f"link del {BRIDGE}"])
        spaces = "\n".join(f"netns del {name}" for name in names if (NAMESPACES / name).exists())
        for batch in (links, spaces):  # what is not there any more is no fault
            subprocess.run(["ip", "-force", "-batch", "-"], input=batch, text=True, capture_output=True, check=False)


def remove_forgotten() -> None:
    """Namespaces of drivers that were killed."""
    for found in NAMESPACES.glob(f"{MARK}*-*") if NAMESPACES.is_dir() else ():
        pid = found.name.removeprefix(MARK).partition("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            with contextlib.suppress(subprocess.CalledProcessError):
                _run("ip", "netns", "del", found.name)


def _batch(lines: Iterable[str], name: str = "") -> None:
    """Lines for ip, in a namespace. Raises NoHosts."""
    _run("ip", *(("-n", name) if name else ()), "-batch", "-", text="\n".join(lines))


def _run(*command: str, text: str = "") -> None:
    """Raises NoHosts."""
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise NoHosts(f"`{' '.join(command)}` failed: {done.stdout.strip()}; network namespaces need root and veth")
