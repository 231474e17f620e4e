"""Table of all metrics: Heron name, Prometheus name, kind, unit and meaning.

Inside Heronry a metric has its *Heron name*: a base and, for keyed metrics, a key after a slash:
`__emit-count/default`, `__execute-count/word/default`. Processes count under Heron names; the topology master and the
tracker serve them. The Prometheus sink translates with this table: prefix `heron_`, base units, counters that end in
`_total`, and only the labels `topology, component, instance, stream, container` (a label per key of a tuple would grow
without bound). `MetricKey` defines the label of a key.

Names that users register (any name outside this table) become `heron_user_<name>`. `docs/reference/metrics.md` shows
the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple

from heron_runtime.model.ids import parse_instance_id


class MetricKind(StrEnum):
    """Kind of a metric: counters add up, the last gauge wins, latencies are distributions (sketches)."""

    COUNTER = "counter"
    GAUGE = "gauge"
    LATENCY = "latency"


class MetricKey(Enum):
    """Key after the base name, and its label in Prometheus.

    NONE is a name without a key. STREAM (``/stream``) and SOURCE (``/component/stream``) become the label ``stream``
    unchanged. A spout keys its acks by stream and a bolt by source, so one metric may have both. INSTANCE
    (``/container_1_word_3``) means that the metric is *about* that instance, which replaces the labels ``instance`` and
    ``component``. OTHER (a peer, a link, a reason) also becomes ``stream``.
    """

    NONE = "none"
    STREAM = "stream"
    SOURCE = "source"
    INSTANCE = "instance"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """Definition of a metric. ``scale`` converts Heron's unit to the base unit of Prometheus (seconds, bytes)."""

    name: str
    prometheus: str
    kind: MetricKind
    help: str
    key: MetricKey = MetricKey.NONE
    scale: float = 1.0


COUNTER, GAUGE, LATENCY = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.LATENCY
NS, US, MS = 1e-9, 1e-6, 1e-3  # to seconds


# Base names used in code. Names of keyed metrics are completed with ``keyed(BASE, ...)``.
EMIT_COUNT = "__emit-count"
ACK_COUNT = "__ack-count"
FAIL_COUNT = "__fail-count"
FAILED_BY_REASON = "__failed-by-reason"
TIMEOUT_COUNT = "__timeout-count"
EXECUTE_COUNT = "__execute-count"
EXECUTE_LATENCY = "__execute-latency"
QUEUE_LATENCY = "__queue-latency"
EXECUTE_TIME_NS = "__execute-time-ns"
SERIALIZATION_TIME_NS = "__tuple-serialization-time-ns"
DESERIALIZATION_TIME_NS = "__tuple-deserialization-time-ns"
PROCESS_LATENCY = "__process-latency"
COMPLETE_LATENCY = "__complete-latency"
FAIL_LATENCY = "__fail-latency"
NEXT_TUPLE_COUNT = "__next-tuple-count"
NEXT_TUPLE_LATENCY = "__next-tuple-latency"
PENDING_ACKED_COUNT = "__pending-acked-count"
SPOUT_LAG = "__spout-lag-ms"

# fmt: off
EXECUTOR_METRICS: tuple[MetricDefinition, ...] = (
    MetricDefinition(EMIT_COUNT, "heron_emitted_total", COUNTER,
        "tuples emitted (each copy of an emit is not counted again)", MetricKey.STREAM),
    MetricDefinition(ACK_COUNT, "heron_acked_total", COUNTER,
        "tuples acked: roots of a spout, inputs of a bolt", MetricKey.SOURCE),
    MetricDefinition(FAIL_COUNT, "heron_failed_total", COUNTER,
        "tuples failed: roots of a spout, inputs of a bolt", MetricKey.SOURCE),
    MetricDefinition(TIMEOUT_COUNT, "heron_timed_out_total", COUNTER,
        "roots that were not complete in time", MetricKey.STREAM),
    MetricDefinition(FAILED_BY_REASON, "heron_failed_by_reason_total", COUNTER,
        "the failed tuples once more, by reason: exception, failed, timeout, moved, stream_manager_lost; "
        "a spout adds who failed them", MetricKey.OTHER),
    MetricDefinition(EXECUTE_COUNT, "heron_executed_total", COUNTER, "tuples given to a bolt", MetricKey.SOURCE),
    MetricDefinition(EXECUTE_LATENCY, "heron_execute_latency_seconds", LATENCY,
        "time inside the bolt's code per tuple", MetricKey.SOURCE, MS),
    MetricDefinition(EXECUTE_TIME_NS, "heron_execute_time_seconds_total", COUNTER,
        "time inside the bolt's code, summed", MetricKey.SOURCE, NS),
    MetricDefinition(SERIALIZATION_TIME_NS, "heron_serialization_time_seconds_total", COUNTER,
        "time to encode the values of emitted tuples, taken once a batch", MetricKey.STREAM, NS),
    MetricDefinition(DESERIALIZATION_TIME_NS, "heron_deserialization_time_seconds_total", COUNTER,
        "time to decode the values of a bolt's input, taken once a batch", MetricKey.SOURCE, NS),
    MetricDefinition(QUEUE_LATENCY, "heron_queue_latency_seconds", LATENCY,
        "from a bolt's receipt of a tuple to the call of its code for it", MetricKey.SOURCE, MS),
    MetricDefinition(PROCESS_LATENCY, "heron_process_latency_seconds", LATENCY,
        "from a bolt's receipt of a tuple to its ack", MetricKey.SOURCE, MS),
    MetricDefinition(COMPLETE_LATENCY, "heron_complete_latency_seconds", LATENCY,
        "from a spout's emit to its ack", MetricKey.STREAM, MS),
    MetricDefinition(FAIL_LATENCY, "heron_fail_latency_seconds", LATENCY,
        "from a tuple's receipt or emit to its fail", MetricKey.SOURCE, MS),
    MetricDefinition(NEXT_TUPLE_COUNT, "heron_next_tuple_total", COUNTER, "calls of next_tuple"),
    MetricDefinition(NEXT_TUPLE_LATENCY,
        "heron_next_tuple_latency_seconds", LATENCY, "time inside next_tuple", scale=MS),
    MetricDefinition(PENDING_ACKED_COUNT, "heron_spout_pending", GAUGE, "tracked tuples in flight of this spout task"),
    MetricDefinition(SPOUT_LAG, "heron_spout_lag_seconds", GAUGE,
        "age of the oldest tuple tree in flight of this spout task; 0 without any. Only with acks; tuples emitted "
        "without a message id are not tracked and do not count", scale=MS),
    MetricDefinition("__busy-time-ms", "heron_busy_seconds_total", COUNTER,
        "time the executor spent working", scale=MS),
    MetricDefinition("__idle-time-ms", "heron_idle_seconds_total", COUNTER,
        "time the executor waited for input", scale=MS),
    MetricDefinition("__backpressured-time-ms", "heron_backpressured_seconds_total", COUNTER,
        "time the executor was blocked: paused by backpressure, or data-out full", scale=MS),
    MetricDefinition("__paused", "heron_paused", GAUGE, "1 while this spout is paused by backpressure or deactivation"),
    MetricDefinition("__dropped-older-count", "heron_dropped_older_total", COUNTER,
        "tuples dropped for their age, as topology.spout.drop.older.ms asks"),
    MetricDefinition("__ignored-settle-count", "heron_ignored_settles_total", COUNTER,
        "second acks or fails of one tuple, ignored"),
    MetricDefinition("__dropped-verdict-count", "heron_dropped_verdicts_total", COUNTER,
        "verdicts for roots of another incarnation or already settled"),
    MetricDefinition("__untracked-ack-count", "heron_untracked_acks_total", COUNTER,
        "ids acked immediately, because nothing tracks them"),
    MetricDefinition("__gateway-sequence-fault-count", "heron_gateway_sequence_faults_total", COUNTER,
        "packets out of sequence"),
    MetricDefinition("__refused-tuple-count", "heron_refused_tuples_total", COUNTER,
        "emits refused: unknown type or too large"),
    MetricDefinition("__hook-exception-count", "heron_hook_exceptions_total", COUNTER, "exceptions task hooks raised"),
    MetricDefinition("__exception-count", "heron_exceptions_total", COUNTER, "exceptions user code raised"),
    MetricDefinition("__dead-letter-count", "heron_dead_letters_total", COUNTER,
        "records that process raised on, sent on the bolt's stream of dead letters instead"),
    MetricDefinition("__pickled-batch-count", "heron_pickled_batches_total", COUNTER,
        "batches the auto serializer sent as pickle"),
    MetricDefinition("__out-queue-full-count", "heron_out_queue_full_total", COUNTER, "times data-out was full"),
    MetricDefinition("__snapshot-time-ms", "heron_snapshot_seconds", LATENCY,
        "time the executor stood still to encode a snapshot of its state, once a checkpoint", scale=MS),
    MetricDefinition("__snapshot-bytes", "heron_snapshot_bytes_total", COUNTER,
        "bytes of snapshots of state, as they are written"),
)

GATEWAY_METRICS: tuple[MetricDefinition, ...] = (
    MetricDefinition("__gateway-received-packets-count", "heron_gateway_received_packets_total", COUNTER,
        "packets from the stream manager"),
    MetricDefinition("__gateway-received-packets-size", "heron_gateway_received_bytes_total", COUNTER,
        "frame bytes from the stream manager"),
    MetricDefinition("__gateway-sent-packets-count", "heron_gateway_sent_packets_total", COUNTER,
        "packets to the stream manager"),
    MetricDefinition("__gateway-sent-packets-size", "heron_gateway_sent_bytes_total", COUNTER,
        "frame bytes to the stream manager"),
    MetricDefinition("__gateway-in-stream-queue-size", "heron_gateway_in_queue_bytes", GAUGE,
        "bytes waiting in data-in"),
    MetricDefinition("__gateway-out-stream-queue-size", "heron_gateway_out_queue_bytes", GAUGE,
        "bytes waiting in data-out"),
    MetricDefinition("__gateway-in-stream-queue-expected-capacity", "heron_gateway_in_queue_capacity_bytes", GAUGE,
        "bound of data-in"),
    MetricDefinition("__gateway-out-stream-queue-expected-capacity", "heron_gateway_out_queue_capacity_bytes", GAUGE,
        "bound of data-out"),
    MetricDefinition("__gateway-reconnect-count", "heron_gateway_reconnects_total", COUNTER,
        "links to the stream manager after the first one"),
    MetricDefinition("__gateway-lost-on-break", "heron_gateway_lost_on_break_total", COUNTER,
        "tuples handed to a stream that broke", MetricKey.STREAM),
    MetricDefinition("__gateway-stale-generation", "heron_gateway_stale_generation_total", COUNTER,
        "tuples not yet sent when their generation ended; they are made again from the last checkpoint",
        MetricKey.STREAM),
)
# fmt: on


# fmt: off
PROCESS_METRICS: tuple[MetricDefinition, ...] = (
    MetricDefinition("__py-user-cpu-time-secs", "heron_process_cpu_user_seconds_total", COUNTER,
        "CPU time in user mode"),
    MetricDefinition("__py-sys-cpu-time-secs", "heron_process_cpu_system_seconds_total", COUNTER,
        "CPU time in the kernel"),
    MetricDefinition("__py-physical-memory-byte", "heron_process_resident_memory_bytes", GAUGE, "resident memory"),
    MetricDefinition("__py-uptime-secs", "heron_process_uptime_seconds", GAUGE, "time since the process began"),
    MetricDefinition("__py-fd-count", "heron_process_open_fds", GAUGE, "open file descriptors"),
    MetricDefinition("__py-thread-count", "heron_process_threads", GAUGE, "threads"),
    *(
        MetricDefinition(f"__py-generation-{n}-{what}", f"heron_process_gc_generation_{n}_{text}", kind, meaning)
        for n in (1, 2, 3)
        for what, text, kind, meaning in (
            ("count", "objects", GAUGE, "objects (or younger collections) that wait for this generation's collection"),
            ("collection-threshold", "threshold", GAUGE, "count at which this generation is collected"),
            ("collections", "collections_total", COUNTER, "collections of this generation"),
        )
    ),
    MetricDefinition("__process/__cpu_user_usec", "heron_process_cpu_user_seconds_total", COUNTER,
        "CPU time in user mode", scale=US),
    MetricDefinition("__process/__cpu_system_usec", "heron_process_cpu_system_seconds_total", COUNTER,
        "CPU time in the kernel", scale=US),
    MetricDefinition("__process/__mem_used_bytes", "heron_process_resident_memory_bytes", GAUGE, "resident memory"),
    MetricDefinition("__process/__uptime_sec", "heron_process_uptime_seconds", GAUGE, "time since the process began"),
    MetricDefinition("__process/__fd_count", "heron_process_open_fds", GAUGE, "open file descriptors"),
    MetricDefinition("__process/__thread_count", "heron_process_threads", GAUGE, "threads"),
    MetricDefinition("__gc-time-ms", "heron_process_gc_seconds_total", COUNTER,
        "time the garbage collector took", scale=MS),
    MetricDefinition("__event-loop-lag-ms", "heron_process_event_loop_lag_seconds", GAUGE,
        "how late the event loop came to a timer, at most, since the report before", scale=MS),
    MetricDefinition("__telemetry-refused", "heron_telemetry_refused_total", COUNTER,
        "values of metric names beyond a process's bound"),
)

STREAM_MANAGER_METRICS: tuple[MetricDefinition, ...] = (
    MetricDefinition("__server/__time_spent_back_pressure_initiated",
        "heron_stmgr_backpressure_initiated_seconds_total", COUNTER,
        "time this stream manager owned at least one cause", scale=MS),
    MetricDefinition("__server/__time_spent_back_pressure_aggr", "heron_stmgr_backpressure_seconds_total", COUNTER,
        "time its spouts were paused, for any cause", scale=MS),
    MetricDefinition("__time_spent_back_pressure_by_compid", "heron_backpressure_caused_seconds_total", COUNTER,
        "time this instance was a cause of backpressure", MetricKey.INSTANCE, MS),
    MetricDefinition("__back_pressure_starts", "heron_stmgr_backpressure_starts_total", COUNTER, "causes that began"),
    MetricDefinition("__connection_buffer_by_instanceid", "heron_stmgr_instance_queue_bytes", GAUGE,
        "bytes queued for a local instance", MetricKey.INSTANCE),
    MetricDefinition("__queue_seconds_by_instanceid", "heron_stmgr_queue_seconds", GAUGE,
        "how long an instance will take for what is queued for it here", MetricKey.INSTANCE),
    MetricDefinition("__connection_buffer_by_peer", "heron_stmgr_peer_queue_bytes", GAUGE,
        "bytes queued for a peer", MetricKey.OTHER),
    # Traffic: "workers" are its instances, "stmgrs" its peers.
    *(
        MetricDefinition(f"__server/__{what}_{way}_{side}",
            f"heron_stmgr_{what.replace('_tuples', '')}_{way}_{name}_total", COUNTER,
            f"{what.replace('_', ' ')} {way} {meaning}", MetricKey.OTHER)
        for what in ("tuples", "ack_tuples", "fail_tuples", "bytes", "packets", "frames")
        for way in ("to", "from")
        for side, name, meaning in (("workers", "instances", "local instances"), ("stmgrs", "peers", "peers"))
    ),
    *(
        MetricDefinition(f"__server/__tuples_to_{side}_lost", f"heron_stmgr_tuples_to_{name}_lost_total", COUNTER,
            f"tuples to {meaning} that were handed to a stream that broke", MetricKey.OTHER)
        for side, name, meaning in (("workers", "instances", "local instances"), ("stmgrs", "peers", "peers"))
    ),
    MetricDefinition("__protocol_violations", "heron_stmgr_protocol_violations_total", COUNTER,
        "messages that broke the protocol"),
    MetricDefinition("__lost_on_break", "heron_stmgr_lost_on_break_total", COUNTER,
        "tuples handed to a stream that broke, by link, component and stream", MetricKey.OTHER),
    MetricDefinition("__sequence_faults", "heron_stmgr_sequence_faults_total", COUNTER,
        "gaps or repeats of packet numbers", MetricKey.OTHER),
    MetricDefinition("__dropped_frames", "heron_stmgr_dropped_frames_total", COUNTER,
        "frames without a destination", MetricKey.OTHER),
    MetricDefinition("__moved_tuples", "heron_stmgr_moved_tuples_total", COUNTER,
        "tuples for tasks that moved or were removed", MetricKey.OTHER),
    MetricDefinition("__stale_generation", "heron_stmgr_stale_generation_total", COUNTER,
        "tuples on their way when their generation ended, by component and stream", MetricKey.OTHER),
    # Tuple trees.
    MetricDefinition("__tracked_roots", "heron_stmgr_tracked_roots", GAUGE, "tuple trees in flight"),
    MetricDefinition("__roots_opened", "heron_stmgr_roots_opened_total", COUNTER, "tuple trees opened"),
    MetricDefinition("__roots_completed", "heron_stmgr_roots_completed_total", COUNTER, "tuple trees completed"),
    MetricDefinition("__roots_failed", "heron_stmgr_roots_failed_total", COUNTER, "tuple trees failed"),
    MetricDefinition("__roots_expired", "heron_stmgr_roots_expired_total", COUNTER, "tuple trees that ran out of time"),
    MetricDefinition("__late_acks", "heron_stmgr_late_acks_total", COUNTER, "acks and fails of unknown roots, dropped"),
    MetricDefinition("__peers_connected", "heron_stmgr_peers_connected", GAUGE, "links to peers that are up"),
    MetricDefinition("__instances_connected", "heron_stmgr_instances_connected", GAUGE,
        "local instances that are connected"),
    MetricDefinition("__plan_number", "heron_plan_number", GAUGE, "number of the newest physical plan known here"),
)

TOPOLOGY_MASTER_METRICS: tuple[MetricDefinition, ...] = (
    MetricDefinition("__leading", "heron_tmanager_leading", GAUGE, "1 while this master leads"),
    MetricDefinition("__epoch", "heron_tmanager_epoch", GAUGE, "epoch of this master"),
    MetricDefinition("__stream_managers_missing", "heron_tmanager_stream_managers_missing", GAUGE,
        "stream managers of the packing plan that are not registered"),
    MetricDefinition("__plans_made", "heron_tmanager_plans_total", COUNTER, "physical plans made"),
    MetricDefinition("__stream_managers_lapsed", "heron_tmanager_stream_managers_lapsed_total", COUNTER,
        "stream managers lost by lease"),
    MetricDefinition("__registrations_refused", "heron_tmanager_registrations_refused_total", COUNTER,
        "registrations of replaced processes"),
    MetricDefinition("__mastership_changes", "heron_tmanager_mastership_changes_total", COUNTER,
        "times this process won or lost mastership"),
    MetricDefinition("__metric_series", "heron_tmanager_metric_series", GAUGE, "time series kept"),
    MetricDefinition("__metric_series_refused", "heron_tmanager_metric_series_refused_total", COUNTER,
        "values of series beyond the bound"),
    MetricDefinition("__stream_manager_deaths", "heron_topology_stream_manager_deaths_total", COUNTER,
        "stream managers that ended and were followed by another one"),
    MetricDefinition("__generation", "heron_topology_generation", GAUGE,
        "generation of the topology's state, if it is kept"),
    MetricDefinition("__generation-phase", "heron_topology_generation_phase", GAUGE,
        "0: it runs; 1: restoring; 2: failed"),
    MetricDefinition("__restores", "heron_topology_restores_total", COUNTER,
        "times the last complete checkpoint was restored"),
    MetricDefinition("__checkpoints_completed", "heron_topology_checkpoints_completed_total", COUNTER,
        "complete checkpoints"),
    MetricDefinition("__checkpoints_cancelled", "heron_topology_checkpoints_cancelled_total", COUNTER,
        "checkpoints that were begun and came to nothing"),
    MetricDefinition("__checkpoint-number", "heron_topology_checkpoint_number", GAUGE,
        "the last complete checkpoint of this master"),
    MetricDefinition("__checkpoint-duration-ms", "heron_topology_checkpoint_duration_seconds", GAUGE,
        "time it took from its beginning until it was complete", scale=MS),
    MetricDefinition("__checkpoint-bubble-ms", "heron_topology_checkpoint_bubble_seconds", GAUGE,
        "time from checkpoint start until all tasks resumed", scale=MS),
    MetricDefinition("__checkpoint-bytes", "heron_topology_checkpoint_bytes", GAUGE, "bytes that tasks wrote for it"),
    MetricDefinition("__checkpoint-under-way-ms", "heron_topology_checkpoint_under_way_seconds", GAUGE,
        "duration of the checkpoint in progress; 0: none in progress", scale=MS),
    MetricDefinition("__checkpoint-removals-failed", "heron_topology_checkpoint_removals_failed_total", COUNTER,
        "times files of old checkpoints could not be removed"),
    MetricDefinition("__topology-lag-ms", "heron_topology_lag_seconds", GAUGE,
        "age of the oldest tuple tree in flight in the topology: the maximum of its spouts. Only with acks",
        scale=MS),
    MetricDefinition("__reserved-cpu-cores", "heron_topology_reserved_cpu_cores", GAUGE,
        "CPU cores of the packing plan"),
    MetricDefinition("__used-cpu-cores", "heron_topology_used_cpu_cores", GAUGE,
        "CPU cores that all processes of its containers used in the last minute"),
    MetricDefinition("__reserved-memory-bytes", "heron_topology_reserved_memory_bytes", GAUGE,
        "memory of the packing plan"),
    MetricDefinition("__used-memory-bytes", "heron_topology_used_memory_bytes", GAUGE,
        "resident memory of all processes of its containers"),
)

METRICS_MANAGER_METRICS: tuple[MetricDefinition, ...] = (
    MetricDefinition("__reports-received", "heron_metricsmgr_reports_total", COUNTER,
        "reports taken from the container's processes"),
    MetricDefinition("__reports-refused", "heron_metricsmgr_reports_refused_total", COUNTER, "reports beyond a bound"),
    MetricDefinition("__processes", "heron_metricsmgr_processes", GAUGE, "processes that have reported"),
    MetricDefinition("__sink-records", "heron_metricsmgr_sink_records_total", COUNTER,
        "batches a sink has taken", MetricKey.OTHER),
    MetricDefinition("__sink-failures", "heron_metricsmgr_sink_failures_total", COUNTER,
        "batches a sink failed to take", MetricKey.OTHER),
    MetricDefinition("__sink-dropped", "heron_metricsmgr_sink_dropped_total", COUNTER,
        "batches dropped since a sink was too slow", MetricKey.OTHER),
    MetricDefinition("__prometheus-port", "heron_metricsmgr_prometheus_port", GAUGE,
        "port the Prometheus sink listens on"),
)

CONTAINER_METRICS: tuple[MetricDefinition, ...] = (
    MetricDefinition("__restarts", "heron_container_restarts_total", COUNTER,
        "restarts of a process, or of a container", MetricKey.OTHER),
    MetricDefinition("__log-lines-dropped", "heron_container_log_lines_dropped", GAUGE,
        "log lines a full or slow disk has cost"),
    MetricDefinition("__process-up", "heron_container_process_up", GAUGE,
        "1 while the process does its work", MetricKey.OTHER),
)
# fmt: on


class MetricSection(NamedTuple):
    """Metrics of one kind of process: its ``component`` in the tracker, and when the metrics are counted."""

    title: str
    component: str
    when: str
    metrics: tuple[MetricDefinition, ...]


SECTIONS: tuple[MetricSection, ...] = (
    MetricSection(
        "Instances: the executor",
        "the name of the spout or bolt",
        "Counted once a batch or a burst of `next_tuple`, never once a tuple; gauges are read once a second.",
        EXECUTOR_METRICS,
    ),
    MetricSection(
        "Instances: the gateway",
        "the name of the spout or bolt",
        "Counted once a packet; gauges are read once a second.",
        GATEWAY_METRICS,
    ),
    MetricSection(
        "Every process, about itself",
        "all of them",
        "Read for each report. Instances report the `__py-…` names, the others the `__process/…` ones; both have the "
        "same names in Prometheus. Collections, their time and the lag of the event loop have one name everywhere.",
        PROCESS_METRICS,
    ),
    MetricSection(
        "Stream managers",
        "`__stmgr__`",
        "Counted once a packet; times of pressure with each tick of 100 ms; gauges are read for each report.",
        STREAM_MANAGER_METRICS,
    ),
    MetricSection(
        "Topology master",
        "`__tmanager__`",
        "Counted when it happens; gauges are read for each report. What is about the topology as a whole is reported "
        "by the master that leads.",
        TOPOLOGY_MASTER_METRICS,
    ),
    MetricSection(
        "Metrics managers",
        "`__metricsmgr__`",
        "Counted once a report and once a beat of a sink.",
        METRICS_MANAGER_METRICS,
    ),
    MetricSection(
        "heron_container and heron_scheduler",
        "`__container__`, `__scheduler__`",
        "Counted when it happens; gauges for each report. The first tells of its processes, the second of containers.",
        CONTAINER_METRICS,
    ),
)

METRIC_TABLE: tuple[MetricDefinition, ...] = tuple(metric for section in SECTIONS for metric in section.metrics)


METRICS: Mapping[str, MetricDefinition] = {metric.name: metric for metric in METRIC_TABLE}


class SplitName(NamedTuple):
    """Parts of a Heron name. ``metric`` is None for a name that a user registered; ``key`` is "" without a key."""

    metric: MetricDefinition | None
    base: str
    key: str


class PrometheusName(NamedTuple):
    """Name in Prometheus, labels that differ from those of the reporting process, and factor to base units."""

    name: str
    labels: Mapping[str, str]
    scale: float
    help: str


def keyed(base: str, *keys: str) -> str:
    """Return the Heron name of a keyed metric: ``keyed("__execute-count", "word", "default")``."""
    return "/".join((base, *keys))


def split_name(name: str) -> SplitName:
    """Split a Heron name by its longest base in the table (a base may itself contain a slash)."""
    base, key = name, ""
    while base:
        metric = METRICS.get(base)
        if metric is not None and (metric.key is not MetricKey.NONE or not key):
            return SplitName(metric, base, key)
        base, _, last = base.rpartition("/")
        key = f"{last}/{key}" if key else last
    base, _, key = name.partition("/")
    return SplitName(None, base, key)


def base_name(name: str) -> str:
    """Return the name without its key."""
    return split_name(name).base


def prometheus_name(name: str, kind: MetricKind) -> PrometheusName:
    """Return the Prometheus name of a Heron name. `kind` is used for metrics that users registered."""
    metric, base, key = split_name(name)
    if metric is None:
        text = "heron_user_" + re.sub(r"[^a-zA-Z0-9_]", "_", base)
        if kind is MetricKind.COUNTER and not text.endswith("_total"):
            text += "_total"
        return PrometheusName(text, {"stream": key} if key else {}, 1.0, f"registered by the topology as {base}")
    return PrometheusName(metric.prometheus, _labels(metric, key), metric.scale, metric.help)


def _labels(metric: MetricDefinition, key: str) -> dict[str, str]:
    if not key:
        return {}
    if metric.key is MetricKey.INSTANCE:
        try:
            return {"instance": key, "component": parse_instance_id(key).component}
        except ValueError:
            return {"instance": key}
    return {"stream": key}
