"""All gRPC services of Heronry: methods and message types."""

from __future__ import annotations

from typing import Any

from heron_runtime.net.rpc import CallShape, RpcMethod, RpcService
from heron_runtime.wire import message_codecs
from heron_runtime.wire.data_codec import decode_packet, encode_packet


def _unary(name: str, request: Any, reply: Any) -> RpcMethod:
    return RpcMethod(name, CallShape.UNARY, request.encode, request.decode, reply.encode, reply.decode)


def _both_ways(name: str, request: Any, reply: Any) -> RpcMethod:
    return RpcMethod(name, CallShape.BIDIRECTIONAL, request.encode, request.decode, reply.encode, reply.decode)


# Served by the stream manager over TCP; called by the peer with the lower container number.
PEER_SERVICE = RpcService(
    "heronry.v1.StreamManagerForPeers",
    (
        RpcMethod("Data", CallShape.BIDIRECTIONAL, encode_packet, decode_packet, encode_packet, decode_packet),
        _both_ways("Control", message_codecs.PEER_CONTROL, message_codecs.PEER_CONTROL),
    ),
)
# Served by the topology master.
MASTER_SERVICE = RpcService(
    "heronry.v1.TopologyMaster",
    (
        _both_ways("StreamManager", message_codecs.TO_MASTER, message_codecs.FROM_MASTER),
        _unary("SetState", message_codecs.SET_STATE, message_codecs.MASTER_STATUS),
        _unary("TakeCheckpoint", message_codecs.TAKE_CHECKPOINT, message_codecs.MASTER_STATUS),
        _unary("RestoreState", message_codecs.RESTORE_STATE, message_codecs.MASTER_STATUS),
        _unary("Status", message_codecs.STATUS_REQUEST, message_codecs.MASTER_STATUS),
        _unary("PublishMetrics", message_codecs.PUBLISH_METRICS, message_codecs.PUBLISH_REPLY),
        _unary("Metrics", message_codecs.METRICS_REQUEST, message_codecs.METRICS_REPLY),
        _unary("Timeline", message_codecs.TIMELINE_REQUEST, message_codecs.TIMELINE_REPLY),
        _unary("Exceptions", message_codecs.EXCEPTIONS_REQUEST, message_codecs.EXCEPTIONS_REPLY),
    ),
)
# Served by the metrics manager on a Unix socket; called by every process of its container except instances.
METRICS_SERVICE = RpcService(
    "heronry.v1.MetricsManager", (_unary("Publish", message_codecs.REPORTS, message_codecs.METRICS_ACK),)
)
# Served by heron_container over TCP.
CONTAINER_SERVICE = RpcService(
    "heronry.v1.HeronContainer",
    (
        _unary("Status", message_codecs.CONTAINER_STATUS_REQUEST, message_codecs.CONTAINER_STATUS),
        _unary("ListFiles", message_codecs.LIST_FILES, message_codecs.FILE_LIST),
        _unary("ReadFile", message_codecs.READ_FILE, message_codecs.FILE_DATA),
        _unary("ListCheckpointFiles", message_codecs.LIST_FILES, message_codecs.FILE_LIST),
        _unary("ReadCheckpointFile", message_codecs.READ_FILE, message_codecs.FILE_DATA),
        _unary("Stacks", message_codecs.STACKS_REQUEST, message_codecs.STACKS),
    ),
)
# Served by heron_scheduler over TCP.
SCHEDULER_SERVICE = RpcService(
    "heronry.v1.HeronScheduler",
    (
        _unary("Status", message_codecs.SCHEDULER_STATUS_REQUEST, message_codecs.SCHEDULER_STATUS),
        _unary("Restart", message_codecs.RESTART_CONTAINER, message_codecs.RESTART_REPLY),
    ),
)
