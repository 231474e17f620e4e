"""Table of all configuration keys: name, type, unit, default, bounds, one line of help.

The table has two families of keys. ``topology.*`` keys belong to the user and are set in the topology (or, if
``component`` is True, in the ``config`` of one component). ``heron.*`` keys belong to the operator: they are passed in
``Launch.settings`` and set with ``--config-property``. Names and meanings are those of Heron if it has the key.
Defaults differ if Heron's would throttle (max spout pending, water marks, flush interval). The user's own keys begin
with ``user.``.

A row has the type of its values, so ``setting(values, Keys.TOPOLOGY_STMGRS)`` is an `int` to the type checker.
``heronry.Config`` inherits the rows as plain strings: ``Config.TOPOLOGY_STMGRS`` is ``"topology.stmgrs"``.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast, overload

MiB = 1024 * 1024
GiB = 1024 * MiB

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Setting(Generic[T_co]):
    """Configuration key with values of type ``T_co``. ``type`` is bool, int, float, str, dict or list."""

    name: str
    type: builtins.type
    default: Any
    help: str
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()  # valid values of a str
    component: bool = False  # may also be set in the config of one component

    def __str__(self) -> str:
        return self.name

    @overload
    def __get__(self, instance: object, owner: builtins.type[dict[str, Any]]) -> str: ...
    @overload
    def __get__(self, instance: object, owner: Any) -> Setting[T_co]: ...
    def __get__(self, instance: object, owner: Any) -> Any:
        """Return the row itself, or its name as an attribute of a configuration class."""
        return self.name if issubclass(owner, dict) else self


@overload
def _row(name: str, type: type[T], default: None, *rest: Any, **more: Any) -> Setting[T | None]: ...
@overload
def _row(name: str, type: type[T], default: T, *rest: Any, **more: Any) -> Setting[T]: ...
def _row(name: str, *rest: Any, **more: Any) -> Setting[Any]:
    return Setting(name, *rest, **more)


# fmt: off
class Keys:
    """Table of the keys. The name of a constant is the key in capitals."""

    # Keys of the user.
    TOPOLOGY_RELIABILITY_MODE = _row("topology.reliability.mode", str, "ATMOST_ONCE",
        "delivery guarantee", choices=("ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE"))
    TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECS = _row("topology.stateful.checkpoint.interval.secs", float, 10.0,
        "with EFFECTIVELY_ONCE: interval between checkpoints", "s", 0.05, 86_400)
    TOPOLOGY_STATEFUL_CHECKPOINT_STORAGE = _row("topology.stateful.checkpoint.storage", str, None,
        "with EFFECTIVELY_ONCE: storage of checkpoints, file:///path of a folder that all containers share "
        "(default: a folder of the topology)")
    TOPOLOGY_STATEFUL_CHECKPOINT_KEEP = _row("topology.stateful.checkpoint.keep", int, 3,
        "with EFFECTIVELY_ONCE: complete checkpoints kept", "checkpoints", 1, 1000)
    TOPOLOGY_STATEFUL_CHECKPOINT_TIMEOUT_SECS = _row("topology.stateful.checkpoint.timeout.secs", float, 60.0,
        "with EFFECTIVELY_ONCE: a checkpoint that takes longer is aborted; doubles after each, up to ten minutes",
        "s", 0.1, 600)
    TOPOLOGY_STATEFUL_CHECK_REFERENCES = _row("topology.stateful.check.references", bool, False,
        "with EFFECTIVELY_ONCE, for debugging: fail a checkpoint if a value of self.keyed was changed through a "
        "reference kept after its call; pickles all values at each checkpoint")
    TOPOLOGY_UPDATE_DRAIN_SECS = _row("topology.update.drain.secs", float, 10.0,
        "without EFFECTIVELY_ONCE: longest pause of spouts before an update that removes tasks, so that "
        "tuples in flight reach them; 0: no pause", "s", 0, 600)
    TOPOLOGY_MAX_SPOUT_PENDING = _row("topology.max.spout.pending", int, 20_000,
        "tracked tuples a spout task may have in flight", "tuples", 1, 10_000_000, component=True)
    TOPOLOGY_MESSAGE_TIMEOUT_SECS = _row("topology.message.timeout.secs", int, 30,
        "time in which a tuple tree must complete; it fails after that", "s", 1, 86_400)
    TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS = _row("topology.enable.message.timeouts", bool, True,
        "fail tuple trees that time out")
    TOPOLOGY_STMGRS = _row("topology.stmgrs", int, 1, "number of containers with tasks", "containers", 1, 4096)
    TOPOLOGY_COMPONENT_PARALLELISM = _row("topology.component.parallelism", int, 1,
        "default number of tasks", "tasks", 1, 65_535, component=True)
    TOPOLOGY_TICK_TUPLE_FREQ_SECS = _row("topology.tick.tuple.freq.secs", float, None,
        "interval of calls of process_tick", "s", 0.001, 86_400, component=True)
    TOPOLOGY_TICK_TUPLE_FREQ_MS = _row("topology.tick.tuple.freq.ms", int, None,
        "interval of calls of process_tick", "ms", 1, 86_400_000, component=True)
    TOPOLOGY_DEBUG = _row("topology.debug", bool, False, "log at DEBUG", component=True)
    TOPOLOGY_LOG_LEVEL = _row("topology.log.level", str, "INFO",
        "log level of instances", choices=("DEBUG", "INFO", "WARNING", "ERROR"), component=True)
    TOPOLOGY_NAME = _row("topology.name", str, None, "set by submit")
    TOPOLOGY_ARGUMENTS = _row("topology.arguments", list, [],
        "set by submit: the arguments of the user's program, available to its tasks in sys.argv[1:]")
    TOPOLOGY_TEAM_NAME = _row("topology.team.name", str, None, "shown in the UI")
    TOPOLOGY_TEAM_EMAIL = _row("topology.team.email", str, None, "shown in the UI")
    TOPOLOGY_TEAM_ENVIRONMENT = _row("topology.team.environment", str, None, "shown in the UI")
    TOPOLOGY_PROJECT_NAME = _row("topology.project.name", str, None, "shown in the UI")
    TOPOLOGY_ENVIRONMENT = _row("topology.environment", dict, {}, "environment variables of instances (name to value)")
    TOPOLOGY_NETWORK_EGRESS = _row("topology.network.egress", bool, False,
        "let containers reach addresses outside their topology's network (clusters docker, swarm and k8s)")
    TOPOLOGY_SERIALIZER = _row("topology.serializer", str, "auto",
        "serializer of values: auto, msgpack, pickle, arrow, the name of a plug-in, or module:Class")
    TOPOLOGY_TUPLE_MAX_BYTES = _row("topology.tuple.max.bytes", int, 64 * MiB,
        "largest tuple that emit accepts", "bytes", 1024, 64 * MiB)
    TOPOLOGY_FLUSH_INTERVAL_MS = _row("topology.flush.interval.ms", int, 5,
        "longest time that an emitted tuple waits for its batch", "ms", 1, 10_000)
    TOPOLOGY_BACKPRESSURE_HIGH_WATERMARK_BYTES = _row("topology.backpressure.high.watermark.bytes", int, 16 * MiB,
        "a buffer above this pauses spouts", "bytes", 64 * 1024, GiB)
    TOPOLOGY_BACKPRESSURE_LOW_WATERMARK_BYTES = _row("topology.backpressure.low.watermark.bytes", int, 8 * MiB,
        "a buffer below this resumes spouts", "bytes", 0, GiB)
    TOPOLOGY_BACKPRESSURE_SCOPE = _row("topology.backpressure.scope", str, "upstream",
        "which spouts pause: those that can reach the slow component, or all", choices=("upstream", "topology"))
    TOPOLOGY_INSTANCE_DATA_IN_CAPACITY_BYTES = _row("topology.instance.data.in.capacity.bytes", int, 4 * MiB,
        "capacity of the data-in queue", "bytes", 64 * 1024, GiB, component=True)
    TOPOLOGY_INSTANCE_DATA_OUT_CAPACITY_BYTES = _row("topology.instance.data.out.capacity.bytes", int, 4 * MiB,
        "capacity of the data-out queue", "bytes", 64 * 1024, GiB, component=True)
    TOPOLOGY_ON_EXCEPTION = _row("topology.on.exception", str, None,
        "uncaught exception in user code: fail the tuple and continue, or restart the instance (default: fail "
        "for BasicBolt and BatchBolt, restart for others)", choices=("fail", "restart"), component=True)
    TOPOLOGY_SPOUT_DROP_OLDER_MS = _row("topology.spout.drop.older.ms", int, None,
        "a spout that defines emit_time_ms(values) drops tuples older than this", "ms", 1, component=True)
    TOPOLOGY_MASTER_REPLICAS = _row("topology.master.replicas", int, 1,
        "topology masters: one leads, the others are standbys, each in its own container", "processes", 1, 3)
    TOPOLOGY_PACKING = _row("topology.packing", str, "round_robin",
        "packing algorithm: round_robin, first_fit_decreasing or the name of a plug-in")
    TOPOLOGY_COMPONENT_CPUMAP = _row("topology.component.cpumap", dict, {}, "cores of each task, by component")
    TOPOLOGY_COMPONENT_RAMMAP = _row("topology.component.rammap", dict, {},
        "memory of each task, by component (bytes, or 512MB, 2GB)")
    TOPOLOGY_COMPONENT_DISKMAP = _row("topology.component.diskmap", dict, {},
        "disk of each task, by component (bytes, or 512MB, 2GB)")
    TOPOLOGY_CONTAINER_CPU = _row("topology.container.cpu", float, None, "cores of each container", "cores", 0.1)
    TOPOLOGY_CONTAINER_RAM = _row("topology.container.ram", int, None, "memory of each container", "bytes", 16 * MiB)
    TOPOLOGY_CONTAINER_DISK = _row("topology.container.disk", int, None, "disk of each container", "bytes", 0)
    TOPOLOGY_VOLUME_DISK = _row("topology.volume.disk", int, None,
        "space for user code in the volume of its topology (cluster docker); above it the tasks are stopped until "
        "space is freed (default: the disk of its containers, at least 4 GiB)", "bytes", MiB)
    TOPOLOGY_CONTAINER_MAX_CPU_HINT = _row("topology.container.max.cpu.hint", float, None,
        "upper limit of the cores of a container", "cores", 0.1)
    TOPOLOGY_CONTAINER_MAX_RAM_HINT = _row("topology.container.max.ram.hint", int, None,
        "upper limit of the memory of a container", "bytes", 16 * MiB)
    TOPOLOGY_CONTAINER_MAX_DISK_HINT = _row("topology.container.max.disk.hint", int, None,
        "upper limit of the disk of a container", "bytes", 0)
    TOPOLOGY_CONTAINER_MAX_INSTANCES = _row("topology.container.max.instances", int, None,
        "upper limit of the tasks of a container", "tasks", 1)
    TOPOLOGY_CONTAINER_PADDING_PERCENTAGE = _row("topology.container.padding.percentage", int, 10,
        "added to each container's needs", "%", 0, 400)
    TOPOLOGY_CONTAINER_RAM_PADDING = _row("topology.container.ram.padding", int, None,
        "added to each container's memory", "bytes", 0)
    TOPOLOGY_CONTAINER_CPU_PADDING = _row("topology.container.cpu.padding", float, None,
        "added to each container's cores", "cores", 0)

    # Keys of the operator.
    HERON_HEARTBEAT_INTERVAL_MS = _row("heron.heartbeat.interval.ms", int, 1000,
        "interval of the heartbeats of each process", "ms", 50, 60_000)
    HERON_LIVENESS_SUSPECT_SECS = _row("heron.liveness.suspect.secs", float, 10.0,
        "time without heartbeat after which a process is suspected and a warning is logged", "s", 0.1)
    HERON_LIVENESS_KILL_SECS = _row("heron.liveness.kill.secs", float, 30.0,
        "time without heartbeat and CPU progress after which a process is killed", "s", 0.1)
    HERON_LIVENESS_KILL_ALWAYS_SECS = _row("heron.liveness.kill.always.secs", float, 120.0,
        "time without heartbeat after which a process is killed in any case", "s", 0.1)
    HERON_RESTART_BACKOFF_MIN_MS = _row("heron.restart.backoff.min.ms", int, 100,
        "delay before the second restart in a row; the first restart is immediate", "ms", 0)
    HERON_RESTART_BACKOFF_MAX_MS = _row("heron.restart.backoff.max.ms", int, 10_000,
        "longest delay between restarts", "ms", 0)
    HERON_RESTART_RESET_SECS = _row("heron.restart.reset.secs", float, 60.0,
        "uptime after which a process restarts with the shortest delay again", "s", 0)
    HERON_MASTER_LEASE_SECS = _row("heron.master.lease.secs", float, 10.0,
        "time without heartbeat after which the master considers a stream manager lost", "s", 0.2)
    HERON_STREAMMGR_PARTITION_LEASE_SECS = _row("heron.streammgr.partition.lease.secs", float, 30.0,
        "time without contact to the topology master and to peers after which a container pauses its spouts", "s", 0.2)
    HERON_STREAMMGR_ACK_BUCKETS = _row("heron.streammgr.ack.buckets", int, 3,
        "buckets of the rotating map; a timeout T takes effect between T and T(1+1/(n-1))", "", 2, 100)
    HERON_STREAMMGR_UPLOAD_WINDOW_BYTES = _row("heron.streammgr.upload.window.bytes", int, 4 * MiB,
        "flow-control window of one instance for the frames it sends", "bytes", 64 * 1024)
    HERON_STREAMMGR_PEER_WINDOW_BYTES = _row("heron.streammgr.peer.window.bytes", int, 4 * MiB,
        "flow-control window of one peer for frames to one task", "bytes", 64 * 1024)
    HERON_METRICS_INTERVAL_SECS = _row("heron.metrics.interval.secs", float, 5.0,
        "interval of the metrics reports of each process", "s", 0.1)
    HERON_METRICS_SINKS = _row("heron.metrics.sinks", list, ["jsonlines", "prometheus", "tmanager"], "metrics sinks")
    HERON_METRICS_GRAPHITE_ADDRESS = _row("heron.metrics.graphite.address", str, "127.0.0.1:2003",
        "address of the graphite sink: host:port, plaintext over TCP")
    HERON_METRICS_STATSD_ADDRESS = _row("heron.metrics.statsd.address", str, "127.0.0.1:8125",
        "address of the statsd sink: host:port, UDP")
    HERON_METRICS_PREFIX = _row("heron.metrics.prefix", str, "heron",
        "prefix of the names of the graphite and statsd sinks")
    HERON_METRICS_JSONLINES_MAX_BYTES = _row("heron.metrics.jsonlines.max.bytes", int, 100 * MiB,
        "size at which the JSON-lines file is rotated", "bytes", 1024)
    HERON_HISTORY_ENABLED = _row("heron.history.enabled", bool, False,
        "keep metrics and events as Parquet, also after the kill (requires pyarrow where the containers run)")
    HERON_HISTORY_FOLDER = _row("heron.history.folder", str, None,
        "folder of the history, shared by all containers (default: history/ of the home on clusters local and "
        "slurm; required on others)")
    HERON_HISTORY_FILE_SECS = _row("heron.history.file.secs", float, 300.0,
        "time after which a container starts a new file; shorter at the start", "s", 1, 86_400)
    HERON_HISTORY_MAX_BYTES = _row("heron.history.max.bytes", int, 256 * MiB,
        "limit of the raw rows (10 s) of a container; the oldest files are removed", "bytes", 1024)
    HERON_HISTORY_KEEP_DAYS = _row("heron.history.keep.days", int, 14,
        "age at which raw rows (10 s) are removed", "days", 1, 10_000)
    HERON_LOGGING_MAXIMUM_SIZE_MB = _row("heron.logging.maximum.size.mb", int, 100,
        "size at which a log file is rotated", "MiB", 1)
    HERON_LOGGING_MAXIMUM_FILES = _row("heron.logging.maximum.files", int, 5, "rotated log files kept", "files", 1)
    HERON_LOGGING_LEVEL = _row("heron.logging.level", str, "INFO",
        "log level of Heronry's own processes", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    HERON_PROCESS_SCHEDULING = _row("heron.process.scheduling", str, "batch",
        "how the kernel schedules instances and stream managers; batch: a wake-up preempts no other process, so "
        "under load batches grow", choices=("batch", "normal"))
    HERON_INSTANCE_FORK = _row("heron.instance.fork", bool, True,
        "fork instances from a prepared process instead of starting each from scratch")
    HERON_USER_CODE_USER = _row("heron.user.code.user", str, None,
        "run instances as this user, who cannot read the topology's key; requires Heronry to run as root (clusters "
        "docker and swarm: always heronry-code)")
    HERON_VOLUME_FOLDER = _row("heron.volume.folder", str, None,
        "shared folder whose size the containers monitor (cluster docker: always the topology's volume)")
    HERON_SCHEDULER = _row("heron.scheduler", str, "local",
        "scheduler of the containers, set by the cluster; with local, container 0 restarts a dead scheduler process")
    HERON_SLURM_PARTITION = _row("heron.slurm.partition", str, None, "cluster slurm: the partition of the job")
    HERON_SLURM_ACCOUNT = _row("heron.slurm.account", str, None, "cluster slurm: the account to charge")
    HERON_SLURM_QOS = _row("heron.slurm.qos", str, None, "cluster slurm: the quality of service of the job")
    HERON_SLURM_CONSTRAINT = _row("heron.slurm.constraint", str, None, "cluster slurm: features that nodes must have")
    HERON_SLURM_TIME_LIMIT = _row("heron.slurm.time.limit", str, None,
        "cluster slurm: the topology ends after this, as 30 (minutes), 12:00:00, 7-00:00:00 or UNLIMITED (default: the "
        "partition's)")
    HERON_SLURM_NODES = _row("heron.slurm.nodes", int, 1, "cluster slurm: minimum number of nodes", "nodes", 1, 4097)
    HERON_SLURM_SPARE_CONTAINERS = _row("heron.slurm.spare.containers", int, 0,
        "cluster slurm: extra containers to reserve in the allocation, for updates", "containers", 0, 4096)
    HERON_STOP_GRACE_SECS = _row("heron.stop.grace.secs", float, 5.0, "time between SIGTERM and SIGKILL", "s", 0)
    HERON_STATE_URL = _row("heron.state.url", str, None,
        "state store of the local cluster (default: files in its home); in config.yaml only")
    HERON_STATE_CREDENTIAL_FILE = _row("heron.state.credential.file", str, None,
        "file of mode 0400 with the credential of the state store; in config.yaml only")
    HERON_STATE_SESSION_TIMEOUT_SECS = _row("heron.state.session.timeout.secs", float, 6.0,
        "time without contact after which a store session expires", "s", 0.5)
# fmt: on


STATE_KEYS = (Keys.HERON_STATE_URL.name, Keys.HERON_STATE_CREDENTIAL_FILE.name)  # per cluster, never per topology
OF_SUBMIT = (Keys.TOPOLOGY_NAME.name, Keys.TOPOLOGY_ARGUMENTS.name)  # set by submit, never by the user
OF_DEFINITION = (Keys.TOPOLOGY_COMPONENT_PARALLELISM.name,)  # read only while a program is defined
ALL_SETTINGS: Mapping[str, Setting[Any]] = {row.name: row for row in vars(Keys).values() if isinstance(row, Setting)}


def setting(values: Mapping[str, Any], key: Setting[T]) -> T:
    """Return the value of ``key`` in ``values``, or its default."""
    value = values.get(key.name)
    return cast(T, key.default if value is None else value)
