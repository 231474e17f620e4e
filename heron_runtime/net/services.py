"""Every gRPC service of Heronry: who serves it, and what is said."""

from __future__ import annotations

from typing import Any

from heron_runtime.net.rpc import Method, Service, Shape
from heron_runtime.wire import codec
from heron_runtime.wire.data_codec import decode_packet, encode_packet


def _unary(name: str, request: Any, reply: Any) -> Method:
    return Method(name, Shape.UNARY, request.encode, request.decode, reply.encode, reply.decode)


def _both_ways(name: str, request: Any, reply: Any) -> Method:
    return Method(name, Shape.BIDIRECTIONAL, request.encode, request.decode, reply.encode, reply.decode)


# Served by the stream manager over TCP; called by the peer with the lower container number.
PEER_SERVICE = Service(
    "heronry.v1.StreamManagerForPeers",
    (
        Method("Data", Shape.BIDIRECTIONAL, encode_packet, decode_packet, encode_packet, decode_packet),
        _both_ways("Control", codec.PEER_CONTROL, codec.PEER_CONTROL),
    ),
)
# Served by the topology master.
MASTER_SERVICE = Service(
    "heronry.v1.TopologyMaster",
    (
        _both_ways("StreamManager", codec.TO_MASTER, codec.FROM_MASTER),
        _unary("SetState", codec.SET_STATE, codec.MASTER_STATUS),
        _unary("TakeCheckpoint", codec.TAKE_CHECKPOINT, codec.MASTER_STATUS),
        _unary("RestoreState", codec.RESTORE_STATE, codec.MASTER_STATUS),
        _unary("Status", codec.STATUS_REQUEST, codec.MASTER_STATUS),
        _unary("PublishMetrics", codec.PUBLISH_METRICS, codec.PUBLISH_REPLY),
        _unary("Metrics", codec.METRICS_REQUEST, codec.METRICS_REPLY),
        _unary("Timeline", codec.TIMELINE_REQUEST, codec.TIMELINE_REPLY),
        _unary("Exceptions", codec.EXCEPTIONS_REQUEST, codec.EXCEPTIONS_REPLY),
    ),
)
# Served by the metrics manager on a Unix socket; called by every process of its container but instances.
METRICS_SERVICE = Service("heronry.v1.MetricsManager", (_unary("Publish", codec.REPORTS, codec.METRICS_ACK),))
# Served by heron_container over TCP.
CONTAINER_SERVICE = Service(
    "heronry.v1.HeronContainer",
    (
        _unary("Status", codec.CONTAINER_STATUS_REQUEST, codec.CONTAINER_STATUS),
        _unary("ListFiles", codec.LIST_FILES, codec.FILE_LIST),
        _unary("ReadFile", codec.READ_FILE, codec.FILE_DATA),
        _unary("ListCheckpointFiles", codec.LIST_FILES, codec.FILE_LIST),
        _unary("ReadCheckpointFile", codec.READ_FILE, codec.FILE_DATA),
        _unary("Stacks", codec.STACKS_REQUEST, codec.STACKS),
    ),
)
# Served by heron_scheduler over TCP.
SCHEDULER_SERVICE = Service(
    "heronry.v1.HeronScheduler",
    (
        _unary("Status", codec.SCHEDULER_STATUS_REQUEST, codec.SCHEDULER_STATUS),
        _unary("Restart", codec.RESTART_CONTAINER, codec.RESTART_REPLY),
    ),
)
