"""The topology as a whole, out of what its processes report: lag, and CPU and memory used against reserved.

The lag is known where tuple trees are tracked. Without acks nobody hears when a tuple is done, so there is none.

Reserved is what the packing plan gives the containers with tasks, used what all processes of those containers take:
instances, stream manager, metrics manager, heron_container and its zygote's children. The masters' own containers are
in neither. Resident memory counts a page that processes share (what instances were forked with) once in each.
"""

from __future__ import annotations

from heron_runtime.model.ids import holds_master
from heron_runtime.model.instance_metrics import SPOUT_LAG
from heron_runtime.model.plan import PackingPlan
from topology_master.core.metric_store import MetricStore

USE_SECONDS = 60.0
# Name to (which sum, factor to its unit).
_CPU = {
    "__py-user-cpu-time-secs": 1.0,
    "__py-sys-cpu-time-secs": 1.0,
    "__process/__cpu_user_usec": 1e-6,
    "__process/__cpu_system_usec": 1e-6,
}
_MEMORY = ("__py-physical-memory-byte", "__process/__mem_used_bytes")


def topology_gauges(store: MetricStore, packing: PackingPlan | None, now: float) -> dict[str, float]:
    """Name to value, the lag only if a spout tells its own. ``now`` in seconds since 1970."""
    cpu = memory = 0.0
    lags_ms: list[float] = []
    for container, name, value in store.exactly(now, USE_SECONDS, (*_CPU, *_MEMORY, SPOUT_LAG)):
        if name == SPOUT_LAG:
            lags_ms.append(value)
        elif holds_master(container):
            continue
        elif name in _CPU:
            cpu += value * _CPU[name]
        else:
            memory += value
    containers = packing.containers if packing is not None else ()
    lag = {"__topology-lag-ms": max(lags_ms)} if lags_ms else {}
    return lag | {
        "__used-cpu-cores": cpu,
        "__used-memory-bytes": memory,
        "__reserved-cpu-cores": sum(c.resources.cpu for c in containers),
        "__reserved-memory-bytes": float(sum(c.resources.ram_bytes for c in containers)),
    }
