"""The table behind ``heronry.model.metrics``: one entry for each metric, grouped by the process that counts it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum


class MetricKind(StrEnum):
    """How values of one metric add up: counters sum, the last gauge wins, latencies are distributions (sketches)."""

    COUNTER = "counter"
    GAUGE = "gauge"
    LATENCY = "latency"


class Key(Enum):
    """What stands behind the base name, and the label it becomes.

    NONE nothing; STREAM ``/stream`` and SOURCE ``/component/stream`` become the label ``stream`` as they are (a spout
    keys its acks by stream, a bolt by source, so one metric may see both); INSTANCE ``/container_1_word_3``: the metric
    is *about* that instance and replaces the labels ``instance`` and ``component``; OTHER (a peer, a link, a reason)
    becomes ``stream`` too.
    """

    NONE = "none"
    STREAM = "stream"
    SOURCE = "source"
    INSTANCE = "instance"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. ``scale`` turns Heron's unit into Prometheus' base unit (seconds, bytes)."""

    name: str
    prometheus: str
    kind: MetricKind
    help: str
    key: Key = Key.NONE
    scale: float = 1.0


COUNTER, GAUGE, LATENCY = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.LATENCY
_NS, _US, _MS = 1e-9, 1e-6, 1e-3

# Base names that code counts under. Keyed ones are completed with ``keyed(BASE, ...)``.
EMIT_COUNT = "__emit-count"
ACK_COUNT = "__ack-count"
FAIL_COUNT = "__fail-count"
TIMEOUT_COUNT = "__timeout-count"
EXECUTE_COUNT = "__execute-count"
EXECUTE_LATENCY = "__execute-latency"
EXECUTE_TIME_NS = "__execute-time-ns"
PROCESS_LATENCY = "__process-latency"
COMPLETE_LATENCY = "__complete-latency"
FAIL_LATENCY = "__fail-latency"
NEXT_TUPLE_COUNT = "__next-tuple-count"
NEXT_TUPLE_LATENCY = "__next-tuple-latency"
PENDING_ACKED_COUNT = "__pending-acked-count"

METRIC_TABLE: tuple[Metric, ...] = (
    # Spouts and bolts: what users look at first.
    Metric(
        EMIT_COUNT,
        "heron_emitted_total",
        COUNTER,
        "tuples emitted (each copy of an emit is not counted again)",
        Key.STREAM,
    ),
    Metric(ACK_COUNT, "heron_acked_total", COUNTER, "tuples acked: roots of a spout, inputs of a bolt", Key.SOURCE),
    Metric(FAIL_COUNT, "heron_failed_total", COUNTER, "tuples failed: roots of a spout, inputs of a bolt", Key.SOURCE),
    Metric(TIMEOUT_COUNT, "heron_timed_out_total", COUNTER, "roots that were not complete in time", Key.STREAM),
    Metric(EXECUTE_COUNT, "heron_executed_total", COUNTER, "tuples given to a bolt", Key.SOURCE),
    Metric(
        EXECUTE_LATENCY,
        "heron_execute_latency_seconds",
        LATENCY,
        "time inside the bolt's code per tuple",
        Key.SOURCE,
        _MS,
    ),
    Metric(
        EXECUTE_TIME_NS,
        "heron_execute_time_seconds_total",
        COUNTER,
        "time inside the bolt's code, summed",
        Key.SOURCE,
        _NS,
    ),
    Metric(
        PROCESS_LATENCY,
        "heron_process_latency_seconds",
        LATENCY,
        "from a bolt's receipt of a tuple to its ack",
        Key.SOURCE,
        _MS,
    ),
    Metric(
        COMPLETE_LATENCY, "heron_complete_latency_seconds", LATENCY, "from a spout's emit to its ack", Key.STREAM, _MS
    ),
    Metric(
        FAIL_LATENCY,
        "heron_fail_latency_seconds",
        LATENCY,
        "from a tuple's receipt or emit to its fail",
        Key.SOURCE,
        _MS,
    ),
    Metric(NEXT_TUPLE_COUNT, "heron_next_tuple_total", COUNTER, "calls of next_tuple"),
    Metric(NEXT_TUPLE_LATENCY, "heron_next_tuple_latency_seconds", LATENCY, "time inside next_tuple", Key.NONE, _MS),
    Metric(PENDING_ACKED_COUNT, "heron_spout_pending", GAUGE, "tracked tuples in flight of this spout task"),
    Metric("__pending-emits-count", "heron_spout_pending_emits", GAUGE, "emits kept back since data-out was full"),
    Metric("__task-run-count", "heron_task_runs_total", COUNTER, "rounds of the executor loop"),
    Metric("__busy-time-ms", "heron_busy_seconds_total", COUNTER, "time the executor spent working", Key.NONE, _MS),
    Metric("__idle-time-ms", "heron_idle_seconds_total", COUNTER, "time the executor waited for input", Key.NONE, _MS),
    Metric(
        "__backpressured-time-ms",
        "heron_backpressured_seconds_total",
        COUNTER,
        "time the executor was paused or waited for room in data-out",
        Key.NONE,
        _MS,
    ),
    Metric("__paused", "heron_paused", GAUGE, "1 while this spout is paused by backpressure or deactivation"),
    Metric(
        "__dropped-older-count",
        "heron_dropped_older_total",
        COUNTER,
        "tuples dropped as topology.spout.drop.older.ms asks",
        Key.STREAM,
    ),
    Metric(
        "__ignored-settle-count", "heron_ignored_settles_total", COUNTER, "second acks or fails of one tuple, ignored"
    ),
    Metric(
        "__dropped-verdict-count",
        "heron_dropped_verdicts_total",
        COUNTER,
        "verdicts for roots of another incarnation or already settled",
    ),
    Metric(
        "__untracked-ack-count", "heron_untracked_acks_total", COUNTER, "ids acked at once, since nothing tracks them"
    ),
    Metric(
        "__gateway-sequence-fault-count", "heron_gateway_sequence_faults_total", COUNTER, "packets out of sequence"
    ),
    Metric("__dropped-older-count", "heron_dropped_older_total", COUNTER, "tuples the spout dropped for their age"),
    Metric("__refused-tuple-count", "heron_refused_tuples_total", COUNTER, "emits refused: unknown type or too large"),
    Metric("__hook-exception-count", "heron_hook_exceptions_total", COUNTER, "exceptions task hooks raised"),
    Metric("__exception-count", "heron_exceptions_total", COUNTER, "exceptions user code raised"),
    Metric(
        "__tuple-serialization-time-ns",
        "heron_tuple_serialization_seconds_total",
        COUNTER,
        "time spent encoding values",
        Key.STREAM,
        _NS,
    ),
    Metric(
        "__tuple-deserialization-time-ns",
        "heron_tuple_deserialization_seconds_total",
        COUNTER,
        "time spent decoding values",
        Key.SOURCE,
        _NS,
    ),
    Metric(
        "__pickled-batch-count",
        "heron_pickled_batches_total",
        COUNTER,
        "batches the auto serializer sent as pickle",
        Key.STREAM,
    ),
    Metric("__out-queue-full-count", "heron_out_queue_full_total", COUNTER, "times data-out was full"),
    # The gateway of an instance.
    Metric(
        "__gateway-received-packets-count",
        "heron_gateway_received_packets_total",
        COUNTER,
        "packets from the stream manager",
    ),
    Metric(
        "__gateway-received-packets-size",
        "heron_gateway_received_bytes_total",
        COUNTER,
        "frame bytes from the stream manager",
    ),
    Metric(
        "__gateway-sent-packets-count", "heron_gateway_sent_packets_total", COUNTER, "packets to the stream manager"
    ),
    Metric(
        "__gateway-sent-packets-size", "heron_gateway_sent_bytes_total", COUNTER, "frame bytes to the stream manager"
    ),
    Metric("__gateway-in-stream-queue-size", "heron_gateway_in_queue_bytes", GAUGE, "bytes waiting in data-in"),
    Metric("__gateway-out-stream-queue-size", "heron_gateway_out_queue_bytes", GAUGE, "bytes waiting in data-out"),
    Metric(
        "__gateway-in-stream-queue-expected-capacity",
        "heron_gateway_in_queue_capacity_bytes",
        GAUGE,
        "bound of data-in",
    ),
    Metric(
        "__gateway-out-stream-queue-expected-capacity",
        "heron_gateway_out_queue_capacity_bytes",
        GAUGE,
        "bound of data-out",
    ),
    Metric("__gateway-in-queue-full-count", "heron_gateway_in_queue_full_total", COUNTER, "times data-in was full"),
    Metric(
        "__gateway-reconnect-count", "heron_gateway_reconnects_total", COUNTER, "new connections to the stream manager"
    ),
    Metric(
        "__gateway-lost-on-break",
        "heron_gateway_lost_on_break_total",
        COUNTER,
        "tuples handed to a stream that broke",
        Key.STREAM,
    ),
    # Every process.
    Metric("__py-user-cpu-time-secs", "heron_process_cpu_user_seconds_total", COUNTER, "CPU time in user mode"),
    Metric("__py-sys-cpu-time-secs", "heron_process_cpu_system_seconds_total", COUNTER, "CPU time in the kernel"),
    Metric("__py-physical-memory-byte", "heron_process_resident_memory_bytes", GAUGE, "resident memory"),
    Metric("__py-uptime-secs", "heron_process_uptime_seconds", GAUGE, "time since the process began"),
    Metric("__py-fd-count", "heron_process_open_fds", GAUGE, "open file descriptors"),
    Metric("__py-thread-count", "heron_process_threads", GAUGE, "threads"),
    *(
        Metric(f"__py-generation-{n}-{what}", f"heron_process_gc_generation_{n}_{text}", kind, meaning)
        for n in (1, 2, 3)
        for what, text, kind, meaning in (
            ("count", "objects", GAUGE, "objects (or younger collections) that wait for this generation's collection"),
            ("collection-threshold", "threshold", GAUGE, "count at which this generation is collected"),
            ("collections", "collections_total", COUNTER, "collections of this generation"),
        )
    ),
    Metric(
        "__process/__cpu_user_usec",
        "heron_process_cpu_user_seconds_total",
        COUNTER,
        "CPU time in user mode",
        Key.NONE,
        _US,
    ),
    Metric(
        "__process/__cpu_system_usec",
        "heron_process_cpu_system_seconds_total",
        COUNTER,
        "CPU time in the kernel",
        Key.NONE,
        _US,
    ),
    Metric("__process/__mem_used_bytes", "heron_process_resident_memory_bytes", GAUGE, "resident memory"),
    Metric("__process/__uptime_sec", "heron_process_uptime_seconds", GAUGE, "time since the process began"),
    Metric("__process/__fd_count", "heron_process_open_fds", GAUGE, "open file descriptors"),
    Metric("__process/__thread_count", "heron_process_threads", GAUGE, "threads"),
    # Stream manager: pressure.
    Metric(
        "__server/__time_spent_back_pressure_initiated",
        "heron_stmgr_backpressure_initiated_seconds_total",
        COUNTER,
        "time this stream manager owned at least one cause",
        Key.NONE,
        _MS,
    ),
    Metric(
        "__server/__time_spent_back_pressure_aggr",
        "heron_stmgr_backpressure_seconds_total",
        COUNTER,
        "time its spouts were paused, whoever caused it",
        Key.NONE,
        _MS,
    ),
    Metric(
        "__time_spent_back_pressure_by_compid",
        "heron_backpressure_caused_seconds_total",
        COUNTER,
        "time this instance was a cause of backpressure",
        Key.INSTANCE,
        _MS,
    ),
    Metric("__back_pressure_starts", "heron_stmgr_backpressure_starts_total", COUNTER, "causes that began"),
    Metric(
        "__connection_buffer_by_instanceid",
        "heron_stmgr_instance_queue_bytes",
        GAUGE,
        "bytes queued for a local instance",
        Key.INSTANCE,
    ),
    Metric("__connection_buffer_by_peer", "heron_stmgr_peer_queue_bytes", GAUGE, "bytes queued for a peer", Key.OTHER),
    # Stream manager: traffic. "workers" are its instances, "stmgrs" its peers.
    *(
        Metric(
            f"__server/__{what}_{way}_{side}",
            f"heron_stmgr_{what.replace('_tuples', '')}_{way}_{name}_total",
            COUNTER,
            f"{what.replace('_', ' ')} {way} {meaning}",
            Key.OTHER,
        )
        for what in ("tuples", "ack_tuples", "fail_tuples", "bytes", "packets", "frames")
        for way in ("to", "from")
        for side, name, meaning in (("workers", "instances", "local instances"), ("stmgrs", "peers", "peers"))
    ),
    *(
        Metric(
            f"__server/__{what}_{side}_lost",
            f"heron_stmgr_{what}_{side}_lost_total",
            COUNTER,
            f"{what.replace('_', ' ')} handed to a stream that broke",
            Key.OTHER,
        )
        for what in ("tuples", "ack_tuples", "fail_tuples", "bytes")
        for side in ("to_workers", "to_stmgrs")
    ),
    Metric(
        "__protocol_violations", "heron_stmgr_protocol_violations_total", COUNTER, "messages that broke the protocol"
    ),
    Metric(
        "__lost_on_break",
        "heron_stmgr_lost_on_break_total",
        COUNTER,
        "tuples handed to a stream that broke",
        Key.OTHER,
    ),
    Metric(
        "__sequence_faults",
        "heron_stmgr_sequence_faults_total",
        COUNTER,
        "gaps or repeats of packet numbers",
        Key.OTHER,
    ),
    Metric("__dropped_frames", "heron_stmgr_dropped_frames_total", COUNTER, "frames that had nowhere to go", Key.OTHER),
    Metric(
        "__moved_tuples",
        "heron_stmgr_moved_tuples_total",
        COUNTER,
        "tuples for tasks that moved or are gone",
        Key.OTHER,
    ),
    # Stream manager: ack tracking.
    Metric("__tracked_roots", "heron_stmgr_tracked_roots", GAUGE, "tuple trees in flight"),
    Metric("__roots_opened", "heron_stmgr_roots_opened_total", COUNTER, "tuple trees opened"),
    Metric("__roots_completed", "heron_stmgr_roots_completed_total", COUNTER, "tuple trees completed"),
    Metric("__roots_failed", "heron_stmgr_roots_failed_total", COUNTER, "tuple trees failed"),
    Metric("__roots_expired", "heron_stmgr_roots_expired_total", COUNTER, "tuple trees that ran out of time"),
    Metric("__late_acks", "heron_stmgr_late_acks_total", COUNTER, "acks and fails of unknown roots, dropped"),
    Metric("__peers_connected", "heron_stmgr_peers_connected", GAUGE, "links to peers that are up"),
    Metric("__instances_connected", "heron_stmgr_instances_connected", GAUGE, "local instances that are connected"),
    Metric("__plan_number", "heron_plan_number", GAUGE, "number of the newest physical plan known here"),
    # Topology master.
    Metric("__leading", "heron_tmanager_leading", GAUGE, "1 while this master leads"),
    Metric("__epoch", "heron_tmanager_epoch", GAUGE, "epoch of this master"),
    Metric(
        "__stream_managers_missing",
        "heron_tmanager_stream_managers_missing",
        GAUGE,
        "stream managers of the packing plan that are not registered",
    ),
    Metric("__plans_made", "heron_tmanager_plans_total", COUNTER, "physical plans made"),
    Metric(
        "__stream_managers_lapsed",
        "heron_tmanager_stream_managers_lapsed_total",
        COUNTER,
        "stream managers lost by lease",
    ),
    Metric(
        "__registrations_refused",
        "heron_tmanager_registrations_refused_total",
        COUNTER,
        "registrations of replaced processes",
    ),
    Metric(
        "__mastership_changes",
        "heron_tmanager_mastership_changes_total",
        COUNTER,
        "times this process won or lost mastership",
    ),
    Metric("__metric_series", "heron_tmanager_metric_series", GAUGE, "time series kept"),
    Metric(
        "__metric_series_refused",
        "heron_tmanager_metric_series_refused_total",
        COUNTER,
        "values of series beyond the bound",
    ),
    # Metrics manager.
    Metric(
        "__reports-received", "heron_metricsmgr_reports_total", COUNTER, "reports taken from the container's processes"
    ),
    Metric("__reports-refused", "heron_metricsmgr_reports_refused_total", COUNTER, "reports beyond a bound"),
    Metric("__processes", "heron_metricsmgr_processes", GAUGE, "processes that have reported"),
    Metric("__sink-records", "heron_metricsmgr_sink_records_total", COUNTER, "batches a sink has taken", Key.OTHER),
    Metric(
        "__sink-failures", "heron_metricsmgr_sink_failures_total", COUNTER, "batches a sink failed to take", Key.OTHER
    ),
    Metric(
        "__sink-dropped",
        "heron_metricsmgr_sink_dropped_total",
        COUNTER,
        "batches dropped since a sink was too slow",
        Key.OTHER,
    ),
    Metric("__prometheus-port", "heron_metricsmgr_prometheus_port", GAUGE, "port the Prometheus sink listens on"),
    # heron_container.
    Metric(
        "__restarts", "heron_container_restarts_total", COUNTER, "restarts of a process of this container", Key.OTHER
    ),
    Metric("__log-lines-dropped", "heron_container_log_lines_dropped", GAUGE, "log lines a full or slow disk has cost"),
    Metric("__process-up", "heron_container_process_up", GAUGE, "1 while the process does its work", Key.OTHER),
    Metric(
        "__telemetry-refused",
        "heron_telemetry_refused_total",
        COUNTER,
        "values of metric names beyond a process's bound",
    ),
)
