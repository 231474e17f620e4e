"""What the processes around the instances count: each about itself, stream managers and masters about the topology."""

from __future__ import annotations

from heron_runtime.model.metric_kinds import COUNTER, GAUGE, MS, US, Key, Metric

# fmt: off
PROCESS_METRICS: tuple[Metric, ...] = (
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
    Metric("__process/__cpu_user_usec", "heron_process_cpu_user_seconds_total", COUNTER,
        "CPU time in user mode", scale=US),
    Metric("__process/__cpu_system_usec", "heron_process_cpu_system_seconds_total", COUNTER,
        "CPU time in the kernel", scale=US),
    Metric("__process/__mem_used_bytes", "heron_process_resident_memory_bytes", GAUGE, "resident memory"),
    Metric("__process/__uptime_sec", "heron_process_uptime_seconds", GAUGE, "time since the process began"),
    Metric("__process/__fd_count", "heron_process_open_fds", GAUGE, "open file descriptors"),
    Metric("__process/__thread_count", "heron_process_threads", GAUGE, "threads"),
    Metric("__gc-time-ms", "heron_process_gc_seconds_total", COUNTER, "time the garbage collector took", scale=MS),
    Metric("__event-loop-lag-ms", "heron_process_event_loop_lag_seconds", GAUGE,
        "how late the event loop came to a timer, at most, since the report before", scale=MS),
    Metric("__telemetry-refused", "heron_telemetry_refused_total", COUNTER,
        "values of metric names beyond a process's bound"),
)

STREAM_MANAGER_METRICS: tuple[Metric, ...] = (
    Metric("__server/__time_spent_back_pressure_initiated", "heron_stmgr_backpressure_initiated_seconds_total", COUNTER,
        "time this stream manager owned at least one cause", scale=MS),
    Metric("__server/__time_spent_back_pressure_aggr", "heron_stmgr_backpressure_seconds_total", COUNTER,
        "time its spouts were paused, whoever caused it", scale=MS),
    Metric("__time_spent_back_pressure_by_compid", "heron_backpressure_caused_seconds_total", COUNTER,
        "time this instance was a cause of backpressure", Key.INSTANCE, MS),
    Metric("__back_pressure_starts", "heron_stmgr_backpressure_starts_total", COUNTER, "causes that began"),
    Metric("__connection_buffer_by_instanceid", "heron_stmgr_instance_queue_bytes", GAUGE,
        "bytes queued for a local instance", Key.INSTANCE),
    Metric("__queue_seconds_by_instanceid", "heron_stmgr_queue_seconds", GAUGE,
        "how long an instance will take for what is queued for it here", Key.INSTANCE),
    Metric("__connection_buffer_by_peer", "heron_stmgr_peer_queue_bytes", GAUGE, "bytes queued for a peer", Key.OTHER),
    # Traffic: "workers" are its instances, "stmgrs" its peers.
    *(
        Metric(f"__server/__{what}_{way}_{side}", f"heron_stmgr_{what.replace('_tuples', '')}_{way}_{name}_total",
            COUNTER, f"{what.replace('_', ' ')} {way} {meaning}", Key.OTHER)
        for what in ("tuples", "ack_tuples", "fail_tuples", "bytes", "packets", "frames")
        for way in ("to", "from")
        for side, name, meaning in (("workers", "instances", "local instances"), ("stmgrs", "peers", "peers"))
    ),
    *(
        Metric(f"__server/__tuples_to_{side}_lost", f"heron_stmgr_tuples_to_{name}_lost_total", COUNTER,
            f"tuples to {meaning} that were handed to a stream that broke", Key.OTHER)
        for side, name, meaning in (("workers", "instances", "local instances"), ("stmgrs", "peers", "peers"))
    ),
    Metric("__protocol_violations", "heron_stmgr_protocol_violations_total", COUNTER,
        "messages that broke the protocol"),
    Metric("__lost_on_break", "heron_stmgr_lost_on_break_total", COUNTER,
        "tuples handed to a stream that broke, by link, component and stream", Key.OTHER),
    Metric("__sequence_faults", "heron_stmgr_sequence_faults_total", COUNTER,
        "gaps or repeats of packet numbers", Key.OTHER),
    Metric("__dropped_frames", "heron_stmgr_dropped_frames_total", COUNTER, "frames that had nowhere to go", Key.OTHER),
    Metric("__moved_tuples", "heron_stmgr_moved_tuples_total", COUNTER,
        "tuples for tasks that moved or are gone", Key.OTHER),
    Metric("__stale_generation", "heron_stmgr_stale_generation_total", COUNTER,
        "tuples on their way when their generation ended, by component and stream", Key.OTHER),
    # Tuple trees.
    Metric("__tracked_roots", "heron_stmgr_tracked_roots", GAUGE, "tuple trees in flight"),
    Metric("__roots_opened", "heron_stmgr_roots_opened_total", COUNTER, "tuple trees opened"),
    Metric("__roots_completed", "heron_stmgr_roots_completed_total", COUNTER, "tuple trees completed"),
    Metric("__roots_failed", "heron_stmgr_roots_failed_total", COUNTER, "tuple trees failed"),
    Metric("__roots_expired", "heron_stmgr_roots_expired_total", COUNTER, "tuple trees that ran out of time"),
    Metric("__late_acks", "heron_stmgr_late_acks_total", COUNTER, "acks and fails of unknown roots, dropped"),
    Metric("__peers_connected", "heron_stmgr_peers_connected", GAUGE, "links to peers that are up"),
    Metric("__instances_connected", "heron_stmgr_instances_connected", GAUGE, "local instances that are connected"),
    Metric("__plan_number", "heron_plan_number", GAUGE, "number of the newest physical plan known here"),
)

TOPOLOGY_MASTER_METRICS: tuple[Metric, ...] = (
    Metric("__leading", "heron_tmanager_leading", GAUGE, "1 while this master leads"),
    Metric("__epoch", "heron_tmanager_epoch", GAUGE, "epoch of this master"),
    Metric("__stream_managers_missing", "heron_tmanager_stream_managers_missing", GAUGE,
        "stream managers of the packing plan that are not registered"),
    Metric("__plans_made", "heron_tmanager_plans_total", COUNTER, "physical plans made"),
    Metric("__stream_managers_lapsed", "heron_tmanager_stream_managers_lapsed_total", COUNTER,
        "stream managers lost by lease"),
    Metric("__registrations_refused", "heron_tmanager_registrations_refused_total", COUNTER,
        "registrations of replaced processes"),
    Metric("__mastership_changes", "heron_tmanager_mastership_changes_total", COUNTER,
        "times this process won or lost mastership"),
    Metric("__metric_series", "heron_tmanager_metric_series", GAUGE, "time series kept"),
    Metric("__metric_series_refused", "heron_tmanager_metric_series_refused_total", COUNTER,
        "values of series beyond the bound"),
    Metric("__stream_manager_deaths", "heron_topology_stream_manager_deaths_total", COUNTER,
        "stream managers that ended and were followed by another one"),
    Metric("__generation", "heron_topology_generation", GAUGE, "generation of the topology's state, if it is kept"),
    Metric("__generation-phase", "heron_topology_generation_phase", GAUGE, "0: it runs; 1: restoring; 2: failed"),
    Metric("__restores", "heron_topology_restores_total", COUNTER, "times the last complete checkpoint was restored"),
    Metric("__checkpoints_completed", "heron_topology_checkpoints_completed_total", COUNTER, "complete checkpoints"),
    Metric("__checkpoints_cancelled", "heron_topology_checkpoints_cancelled_total", COUNTER,
        "checkpoints that were begun and came to nothing"),
    Metric("__checkpoint-number", "heron_topology_checkpoint_number", GAUGE,
        "the last complete checkpoint of this master"),
    Metric("__checkpoint-duration-ms", "heron_topology_checkpoint_duration_seconds", GAUGE,
        "time it took from its beginning until it was complete", scale=MS),
    Metric("__checkpoint-bubble-ms", "heron_topology_checkpoint_bubble_seconds", GAUGE,
        "time from its beginning until everybody went on: spouts were silent for no longer", scale=MS),
    Metric("__checkpoint-bytes", "heron_topology_checkpoint_bytes", GAUGE, "bytes that tasks wrote for it"),
    Metric("__checkpoint-under-way-ms", "heron_topology_checkpoint_under_way_seconds", GAUGE,
        "how long the checkpoint under way has taken so far; 0: there is none", scale=MS),
    Metric("__checkpoint-removals-failed", "heron_topology_checkpoint_removals_failed_total", COUNTER,
        "times files of old checkpoints could not be removed"),
    Metric("__topology-lag-ms", "heron_topology_lag_seconds", GAUGE,
        "age of the oldest tuple tree in flight in the topology: the worst of its spouts; not there without acks",
        scale=MS),
    Metric("__reserved-cpu-cores", "heron_topology_reserved_cpu_cores", GAUGE, "CPU cores of the packing plan"),
    Metric("__used-cpu-cores", "heron_topology_used_cpu_cores", GAUGE,
        "CPU cores that all processes of its containers used in the last minute"),
    Metric("__reserved-memory-bytes", "heron_topology_reserved_memory_bytes", GAUGE, "memory of the packing plan"),
    Metric("__used-memory-bytes", "heron_topology_used_memory_bytes", GAUGE,
        "resident memory of all processes of its containers"),
)

METRICS_MANAGER_METRICS: tuple[Metric, ...] = (
    Metric("__reports-received", "heron_metricsmgr_reports_total", COUNTER,
        "reports taken from the container's processes"),
    Metric("__reports-refused", "heron_metricsmgr_reports_refused_total", COUNTER, "reports beyond a bound"),
    Metric("__processes", "heron_metricsmgr_processes", GAUGE, "processes that have reported"),
    Metric("__sink-records", "heron_metricsmgr_sink_records_total", COUNTER, "batches a sink has taken", Key.OTHER),
    Metric("__sink-failures", "heron_metricsmgr_sink_failures_total", COUNTER,
        "batches a sink failed to take", Key.OTHER),
    Metric("__sink-dropped", "heron_metricsmgr_sink_dropped_total", COUNTER,
        "batches dropped since a sink was too slow", Key.OTHER),
    Metric("__prometheus-port", "heron_metricsmgr_prometheus_port", GAUGE, "port the Prometheus sink listens on"),
)

CONTAINER_METRICS: tuple[Metric, ...] = (
    Metric("__restarts", "heron_container_restarts_total", COUNTER,
        "restarts of a process, or of a container", Key.OTHER),
    Metric("__log-lines-dropped", "heron_container_log_lines_dropped", GAUGE, "log lines a full or slow disk has cost"),
    Metric("__process-up", "heron_container_process_up", GAUGE, "1 while the process does its work", Key.OTHER),
)
# fmt: on
