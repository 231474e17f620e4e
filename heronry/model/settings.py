"""Every configuration key there is: name, type, unit, default, bounds, one line of help.

Two families share the table. ``topology.*`` keys are the user's: they stand in the topology (or, where ``component``
says so, in one component's ``config``). ``heron.*`` keys are the operator's: they travel in ``Launch.settings`` and are
set with ``--config-property``. Names and meanings are Heron's where Heron has them; defaults are ours where Heron's
would throttle (max spout pending, water marks, flush interval). Keys of the user's own begin with ``user.``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MiB = 1024 * 1024
GiB = 1024 * MiB


@dataclass(frozen=True, slots=True)
class Setting:
    """One key. ``type`` is bool, int, float, str, dict or list; ``choices`` closes a str."""

    name: str
    type: type
    default: Any
    help: str
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    component: bool = False  # may also stand in one component's config


def _table(*settings: Setting) -> dict[str, Setting]:
    return {setting.name: setting for setting in settings}


TOPOLOGY_SETTINGS = _table(
    Setting("topology.reliability.mode", str, "ATMOST_ONCE", "delivery guarantee",
            choices=("ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE")),
    Setting("topology.max.spout.pending", int, 20_000, "tracked tuples a spout task may have in flight",
            "tuples", 1, 10_000_000, component=True),
    Setting("topology.message.timeout.secs", int, 30, "a tuple tree fails when it is not complete by then", "s", 1, 86_400),
    Setting("topology.enable.message.timeouts", bool, True, "fail tuple trees by timeout at all"),
    Setting("topology.stmgrs", int, 1, "number of containers with tasks", "containers", 1, 4096),
    Setting("topology.component.parallelism", int, 1, "default number of tasks", "tasks", 1, 65_535, component=True),
    Setting("topology.tick.tuple.freq.secs", float, None, "call process_tick this often", "s", 0.001, 86_400, component=True),
    Setting("topology.tick.tuple.freq.ms", int, None, "call process_tick this often", "ms", 1, 86_400_000, component=True),
    Setting("topology.debug", bool, False, "log at DEBUG", component=True),
    Setting("topology.log.level", str, "INFO", "log level of instances",
            choices=("DEBUG", "INFO", "WARNING", "ERROR"), component=True),
    Setting("topology.name", str, None, "set by submit"),
    Setting("topology.team.name", str, None, "shown to people"),
    Setting("topology.team.email", str, None, "shown to people"),
    Setting("topology.team.environment", str, None, "shown to people"),
    Setting("topology.project.name", str, None, "shown to people"),
    Setting("topology.environment", dict, {}, "environment variables of instances (name to value)"),
    Setting("topology.serializer", str, "auto", "how values travel: auto, msgpack, pickle, arrow or module:Class of your own"),
    Setting("topology.tuple.max.bytes", int, 64 * MiB, "larger tuples are refused at emit", "bytes", 1024, 64 * MiB),
    Setting("topology.flush.interval.ms", int, 5, "no emitted tuple waits longer than this for its batch", "ms", 1, 10_000),
    Setting("topology.backpressure.high.watermark.bytes", int, 16 * MiB, "a buffer this full pauses spouts", "bytes", 64 * 1024, GiB),
    Setting("topology.backpressure.low.watermark.bytes", int, 8 * MiB, "…until it is this empty", "bytes", 0, GiB),
    Setting("topology.backpressure.scope", str, "upstream",
            "which spouts pause: those that can reach the slow component, or all", choices=("upstream", "topology")),
    Setting("topology.instance.data.in.capacity.bytes", int, 4 * MiB, "bound of the data-in queue", "bytes", 64 * 1024, GiB, component=True),
    Setting("topology.instance.data.out.capacity.bytes", int, 4 * MiB, "bound of the data-out queue", "bytes", 64 * 1024, GiB, component=True),
    Setting("topology.on.exception", str, None,
            "uncaught exception in user code: fail the tuple and go on, or restart the instance "
            "(default: fail for BasicBolt and BatchBolt, restart for others)", choices=("fail", "restart"), component=True),
    Setting("topology.spout.drop.older.ms", int, None,
            "a spout that has emit_time_ms(values) emits nothing older than this", "ms", 1, component=True),
    Setting("topology.master.replicas", int, 1, "topology masters: one acts, the others stand by", "processes", 1, 3),
    Setting("topology.packing", str, "round_robin", "packing algorithm", choices=("round_robin", "first_fit_decreasing")),
    Setting("topology.component.cpumap", dict, {}, "component to cores of each of its tasks"),
    Setting("topology.component.rammap", dict, {}, "component to bytes of each of its tasks (a number or 512MB, 2GB)"),
    Setting("topology.component.diskmap", dict, {}, "component to bytes of disk of each of its tasks"),
    Setting("topology.container.cpu", float, None, "cores of each container", "cores", 0.1),
    Setting("topology.container.ram", int, None, "memory of each container", "bytes", 16 * MiB),
    Setting("topology.container.disk", int, None, "disk of each container", "bytes", 0),
    Setting("topology.container.max.cpu.hint", float, None, "no container may need more", "cores", 0.1),
    Setting("topology.container.max.ram.hint", int, None, "no container may need more", "bytes", 16 * MiB),
    Setting("topology.container.max.disk.hint", int, None, "no container may need more", "bytes", 0),
    Setting("topology.container.max.instances", int, None, "no container may hold more tasks", "tasks", 1),
    Setting("topology.container.padding.percentage", int, 10, "added to each container's needs", "%", 0, 400),
    Setting("topology.container.ram.padding", int, None, "added to each container's memory", "bytes", 0),
    Setting("topology.container.cpu.padding", float, None, "added to each container's cores", "cores", 0),
)

HERON_SETTINGS = _table(
    Setting("heron.heartbeat.interval.ms", int, 1000, "every process beats this often", "ms", 50, 60_000),
    Setting("heron.liveness.suspect.secs", float, 10.0, "without heartbeat this long: suspected, logged", "s", 0.1),
    Setting("heron.liveness.kill.secs", float, 30.0, "without heartbeat and without CPU progress this long: killed", "s", 0.1),
    Setting("heron.liveness.kill.always.secs", float, 120.0, "without heartbeat this long: killed in any case", "s", 0.1),
    Setting("heron.restart.backoff.min.ms", int, 100, "the first restart is at once; delay before the second in a row", "ms", 0),
    Setting("heron.restart.backoff.max.ms", int, 10_000, "longest delay between restarts", "ms", 0),
    Setting("heron.restart.reset.secs", float, 60.0, "a process that lived this long starts afresh with the shortest delay", "s", 0),
    Setting("heron.master.lease.secs", float, 10.0, "a stream manager silent this long is lost to the master", "s", 0.2),
    Setting("heron.streammgr.partition.lease.secs", float, 30.0, "without master and peers this long: spouts pause", "s", 0.2),
    Setting("heron.streammgr.ack.buckets", int, 3, "buckets of the rotating map; expiry lies in T to T(1+1/(n-1))", "", 2, 100),
    Setting("heron.streammgr.upload.window.bytes", int, 4 * MiB, "credit of one instance for frames it sends", "bytes", 64 * 1024),
    Setting("heron.streammgr.peer.window.bytes", int, 4 * MiB, "credit of one peer for frames to one task", "bytes", 64 * 1024),
    Setting("heron.metrics.interval.secs", float, 5.0, "processes report this often", "s", 0.1),
    Setting("heron.metrics.sinks", list, ["jsonlines", "prometheus", "tmanager"], "where metrics go"),
    Setting("heron.metrics.graphite.address", str, "127.0.0.1:2003", "where the graphite sink sends to: host:port, plaintext over TCP"),
    Setting("heron.metrics.statsd.address", str, "127.0.0.1:8125", "where the statsd sink sends to: host:port, UDP"),
    Setting("heron.metrics.prefix", str, "heron", "what the names of the graphite and statsd sinks begin with"),
    Setting("heron.metrics.jsonlines.max.bytes", int, 100 * MiB, "size at which the JSON-lines file is rotated", "bytes", 1024),
    Setting("heron.logging.maximum.size.mb", int, 100, "size at which a log file is rotated", "MiB", 1),
    Setting("heron.logging.maximum.files", int, 5, "rotated log files kept", "files", 1),
    Setting("heron.logging.level", str, "INFO", "log level of Heronry's own processes", choices=("DEBUG", "INFO", "WARNING", "ERROR")),
    Setting("heron.process.scheduling", str, "batch",
            "how the kernel schedules instances and stream managers; batch: a wake-up preempts nobody, so under load "
            "batches grow", choices=("batch", "normal")),
    Setting("heron.instance.fork", bool, True, "fork instances from a prepared process instead of starting each from nothing"),
    Setting("heron.scheduler", str, "local", "what runs the containers; with local, container 0 brings back a dead scheduler process"),
    Setting("heron.stop.grace.secs", float, 5.0, "SIGTERM, this long, then SIGKILL", "s", 0),
    Setting("heron.state.url", str, None, "where the local cluster keeps its state (default: files in its home); in config.yaml only"),
    Setting("heron.state.credential.file", str, None, "file of mode 0400 with the credential of that store; in config.yaml only"),
    Setting("heron.state.session.timeout.secs", float, 6.0, "a store session ends after this silence", "s", 0.5),
)

ALL_SETTINGS: Mapping[str, Setting] = {**TOPOLOGY_SETTINGS, **HERON_SETTINGS}


def setting(values: Mapping[str, Any], name: str) -> Any:
    """The value of ``name`` in ``values``, or its default. Raises KeyError for a key that is not in the table."""
    found = values.get(name)
    return ALL_SETTINGS[name].default if found is None else found
