"""What instances count about themselves: the executor (user code) and the gateway (all I/O)."""

from __future__ import annotations

from heron_runtime.model.metric_kinds import COUNTER, GAUGE, LATENCY, MS, NS, Key, Metric

# Base names that code counts under. Keyed ones are completed with ``keyed(BASE, ...)``.
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
EXECUTOR_METRICS: tuple[Metric, ...] = (
    Metric(EMIT_COUNT, "heron_emitted_total", COUNTER,
        "tuples emitted (each copy of an emit is not counted again)", Key.STREAM),
    Metric(ACK_COUNT, "heron_acked_total", COUNTER, "tuples acked: roots of a spout, inputs of a bolt", Key.SOURCE),
    Metric(FAIL_COUNT, "heron_failed_total", COUNTER, "tuples failed: roots of a spout, inputs of a bolt", Key.SOURCE),
    Metric(TIMEOUT_COUNT, "heron_timed_out_total", COUNTER, "roots that were not complete in time", Key.STREAM),
    Metric(FAILED_BY_REASON, "heron_failed_by_reason_total", COUNTER,
        "the failed tuples once more, by reason: exception, failed, timeout, moved, stream_manager_lost; "
        "a spout adds who failed them", Key.OTHER),
    Metric(EXECUTE_COUNT, "heron_executed_total", COUNTER, "tuples given to a bolt", Key.SOURCE),
    Metric(EXECUTE_LATENCY, "heron_execute_latency_seconds", LATENCY,
        "time inside the bolt's code per tuple", Key.SOURCE, MS),
    Metric(EXECUTE_TIME_NS, "heron_execute_time_seconds_total", COUNTER,
        "time inside the bolt's code, summed", Key.SOURCE, NS),
    Metric(SERIALIZATION_TIME_NS, "heron_serialization_time_seconds_total", COUNTER,
        "time to encode the values of emitted tuples, taken once a batch", Key.STREAM, NS),
    Metric(DESERIALIZATION_TIME_NS, "heron_deserialization_time_seconds_total", COUNTER,
        "time to decode the values of a bolt's input, taken once a batch", Key.SOURCE, NS),
    Metric(QUEUE_LATENCY, "heron_queue_latency_seconds", LATENCY,
        "from a bolt's receipt of a tuple to the call of its code for it", Key.SOURCE, MS),
    Metric(PROCESS_LATENCY, "heron_process_latency_seconds", LATENCY,
        "from a bolt's receipt of a tuple to its ack", Key.SOURCE, MS),
    Metric(COMPLETE_LATENCY, "heron_complete_latency_seconds", LATENCY,
        "from a spout's emit to its ack", Key.STREAM, MS),
    Metric(FAIL_LATENCY, "heron_fail_latency_seconds", LATENCY,
        "from a tuple's receipt or emit to its fail", Key.SOURCE, MS),
    Metric(NEXT_TUPLE_COUNT, "heron_next_tuple_total", COUNTER, "calls of next_tuple"),
    Metric(NEXT_TUPLE_LATENCY, "heron_next_tuple_latency_seconds", LATENCY, "time inside next_tuple", scale=MS),
    Metric(PENDING_ACKED_COUNT, "heron_spout_pending", GAUGE, "tracked tuples in flight of this spout task"),
    Metric(SPOUT_LAG, "heron_spout_lag_seconds", GAUGE,
        "age of the oldest tuple tree in flight of this spout task; 0 when none is; not there without acks, where "
        "nobody hears when a tuple is done (tuples emitted without an id do not count, for the same reason)", scale=MS),
    Metric("__busy-time-ms", "heron_busy_seconds_total", COUNTER, "time the executor spent working", scale=MS),
    Metric("__idle-time-ms", "heron_idle_seconds_total", COUNTER, "time the executor waited for input", scale=MS),
    Metric("__backpressured-time-ms", "heron_backpressured_seconds_total", COUNTER,
        "time the executor could not go on: paused by backpressure, or no room in data-out", scale=MS),
    Metric("__paused", "heron_paused", GAUGE, "1 while this spout is paused by backpressure or deactivation"),
    Metric("__dropped-older-count", "heron_dropped_older_total", COUNTER,
        "tuples dropped for their age, as topology.spout.drop.older.ms asks"),
    Metric("__ignored-settle-count", "heron_ignored_settles_total", COUNTER,
        "second acks or fails of one tuple, ignored"),
    Metric("__dropped-verdict-count", "heron_dropped_verdicts_total", COUNTER,
        "verdicts for roots of another incarnation or already settled"),
    Metric("__untracked-ack-count", "heron_untracked_acks_total", COUNTER,
        "ids acked at once, since nothing tracks them"),
    Metric("__gateway-sequence-fault-count", "heron_gateway_sequence_faults_total", COUNTER, "packets out of sequence"),
    Metric("__refused-tuple-count", "heron_refused_tuples_total", COUNTER, "emits refused: unknown type or too large"),
    Metric("__hook-exception-count", "heron_hook_exceptions_total", COUNTER, "exceptions task hooks raised"),
    Metric("__exception-count", "heron_exceptions_total", COUNTER, "exceptions user code raised"),
    Metric("__dead-letter-count", "heron_dead_letters_total", COUNTER,
        "records that process raised on, sent on the bolt's stream of dead letters instead"),
    Metric("__pickled-batch-count", "heron_pickled_batches_total", COUNTER,
        "batches the auto serializer sent as pickle"),
    Metric("__out-queue-full-count", "heron_out_queue_full_total", COUNTER, "times data-out was full"),
    Metric("__snapshot-time-ms", "heron_snapshot_seconds", LATENCY,
        "time the executor stood still to encode a snapshot of its state, once a checkpoint", scale=MS),
    Metric("__snapshot-bytes", "heron_snapshot_bytes_total", COUNTER,
        "bytes of snapshots of state, as they are written"),
)

GATEWAY_METRICS: tuple[Metric, ...] = (
    Metric("__gateway-received-packets-count", "heron_gateway_received_packets_total", COUNTER,
        "packets from the stream manager"),
    Metric("__gateway-received-packets-size", "heron_gateway_received_bytes_total", COUNTER,
        "frame bytes from the stream manager"),
    Metric("__gateway-sent-packets-count", "heron_gateway_sent_packets_total", COUNTER,
        "packets to the stream manager"),
    Metric("__gateway-sent-packets-size", "heron_gateway_sent_bytes_total", COUNTER,
        "frame bytes to the stream manager"),
    Metric("__gateway-in-stream-queue-size", "heron_gateway_in_queue_bytes", GAUGE, "bytes waiting in data-in"),
    Metric("__gateway-out-stream-queue-size", "heron_gateway_out_queue_bytes", GAUGE, "bytes waiting in data-out"),
    Metric("__gateway-in-stream-queue-expected-capacity", "heron_gateway_in_queue_capacity_bytes", GAUGE,
        "bound of data-in"),
    Metric("__gateway-out-stream-queue-expected-capacity", "heron_gateway_out_queue_capacity_bytes", GAUGE,
        "bound of data-out"),
    Metric("__gateway-reconnect-count", "heron_gateway_reconnects_total", COUNTER,
        "links to the stream manager after the first one"),
    Metric("__gateway-lost-on-break", "heron_gateway_lost_on_break_total", COUNTER,
        "tuples handed to a stream that broke", Key.STREAM),
    Metric("__gateway-stale-generation", "heron_gateway_stale_generation_total", COUNTER,
        "tuples not yet sent when their generation ended; they are made again from the last checkpoint", Key.STREAM),
)
# fmt: on
