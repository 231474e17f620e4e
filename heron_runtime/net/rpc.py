"""All gRPC services, without generated stubs: a service is a table of methods, each with the codecs of its messages.

Callers and servers therefore use only the plain types of ``heron_runtime.wire``. Every connection is TLS, and both ends
prove that they hold the topology's key before a call is made (``identity``). An end that does not is UNAVAILABLE to the
other. The caller's metadata names the addressed topology; a server refuses another id with FAILED_PRECONDITION. gRPC's
own retries are off, since a packet must be handed to a stream exactly once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import grpc
import grpc.aio

from heron_runtime.net.frames import MAX_MESSAGE_BYTES
from heron_runtime.net.identity import NAME, TOPOLOGY_KEY, Identity
from heron_runtime.wire import message_codecs
from heron_runtime.wire.data_codec import decode_packet, encode_packet

_COMMON_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.enable_retries", 0),
]
SERVER_OPTIONS = [
    *_COMMON_OPTIONS,
    ("grpc.so_reuseport", 0),
    ("grpc.max_metadata_size", 16 * 1024),
    # By default, a server treats the third keepalive ping on an idle stream as an attack and ends the connection. Our
    # own channels ping every 30 s (see below).
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
]
CHANNEL_OPTIONS = [
    *_COMMON_OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),  # a separate connection per link, so that links fail independently
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5000),  # actually the timeout of one attempt; a refused one fails at once
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.ssl_target_name_override", NAME),
]


class CallShape(Enum):
    """Shape of a call: unary, or streams in both directions."""

    UNARY = "unary"
    BIDIRECTIONAL = "bidirectional"


@dataclass(frozen=True)
class RpcMethod:
    """Method of a service: its shape, and the codecs of requests and replies."""

    name: str
    shape: CallShape
    encode_request: Callable[[Any], bytes]
    decode_request: Callable[[bytes], Any]
    encode_reply: Callable[[Any], bytes]
    decode_reply: Callable[[bytes], Any]


@dataclass(frozen=True)
class RpcService:
    """Service: a named table of methods."""

    name: str
    methods: tuple[RpcMethod, ...]

    def method(self, name: str) -> RpcMethod:
        """Return the method of this name. Raises KeyError."""
        for method in self.methods:
            if method.name == name:
                return method
        raise KeyError(name)

    def handler(self, **implementations: Callable[..., Any]) -> grpc.GenericRpcHandler:
        """Return a handler for a ``grpc.aio`` server.

        A unary implementation is ``async (request, context) -> reply``; a bidirectional one is
        ``async (request_iterator, context) -> None`` and uses ``context.read()`` and ``context.write()``.
        """
        handlers = {}
        for name, implementation in implementations.items():
            method = self.method(name)
            make = (
                grpc.unary_unary_rpc_method_handler
                if method.shape is CallShape.UNARY
                else grpc.stream_stream_rpc_method_handler
            )
            handlers[name] = make(
                implementation,
                request_deserializer=method.decode_request,
                response_serializer=method.encode_reply,
            )
        return grpc.method_handlers_generic_handler(self.name, handlers)

    def call(self, channel: grpc.aio.Channel, name: str) -> Callable[..., Any]:
        """Return the multicallable of a method on an asyncio channel."""
        method = self.method(name)
        make: Any = channel.unary_unary if method.shape is CallShape.UNARY else channel.stream_stream
        call: Callable[..., Any] = make(
            f"/{self.name}/{name}",
            request_serializer=method.encode_request,
            response_deserializer=method.decode_reply,
        )
        return call

    def blocking_call(self, channel: grpc.Channel, name: str) -> Callable[..., Any]:
        """Return the multicallable of a unary method on a synchronous channel, for the command line."""
        method = self.method(name)
        call: Callable[..., Any] = channel.unary_unary(
            f"/{self.name}/{name}",
            request_serializer=method.encode_request,
            response_deserializer=method.decode_reply,
        )
        return call


class TopologyIdInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpcio ships no types
    """Interceptor that refuses calls to another topology or submission before it reads their messages."""

    def __init__(self, topology_id: str) -> None:
        self._topology = topology_id

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        """Pass the call on, or refuse it with FAILED_PRECONDITION."""
        metadata = dict(handler_call_details.invocation_metadata or ())
        if metadata.get(TOPOLOGY_KEY) != self._topology:
            return _refusal(grpc.StatusCode.FAILED_PRECONDITION, f"this is topology {self._topology}")
        return await continuation(handler_call_details)


def _refusal(code: grpc.StatusCode, text: str) -> grpc.RpcMethodHandler:
    async def refuse(_: Any, context: grpc.aio.ServicerContext) -> None:
        await context.abort(code, text)

    return grpc.stream_stream_rpc_method_handler(refuse)


def make_server(
    identity: Identity, address: str, handlers: Sequence[grpc.GenericRpcHandler]
) -> tuple[grpc.aio.Server, int]:
    """Create a server for callers of this topology. The caller starts it.

    Args:
        identity: Identity of the topology.
        address: Address to bind, ``host:port`` or ``unix:/path``.
        handlers: Handlers of the services.

    Returns:
        The server and its port.

    Raises:
        RuntimeError: The address cannot be bound, or the key is invalid.
    """
    server = grpc.aio.server(interceptors=[TopologyIdInterceptor(identity.topology_id)], options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers(tuple(handlers))
    return server, server.add_secure_port(address, identity.of_servers())


def make_channel(target: str, identity: Identity) -> grpc.aio.Channel:
    """Create an asyncio channel to a server of this topology. ``target`` is ``host:port`` or ``unix:/path``."""
    return grpc.aio.secure_channel(target, identity.of_callers(), options=CHANNEL_OPTIONS)


def make_blocking_channel(target: str, identity: Identity) -> grpc.Channel:
    """Create a synchronous channel to a server of this topology."""
    return grpc.secure_channel(target, identity.of_callers(), options=CHANNEL_OPTIONS)


def _unary(name: str, request: Any, reply: Any) -> RpcMethod:
    return RpcMethod(name, CallShape.UNARY, request.encode, request.decode, reply.encode, reply.decode)


def _bidirectional(name: str, request: Any, reply: Any) -> RpcMethod:
    return RpcMethod(name, CallShape.BIDIRECTIONAL, request.encode, request.decode, reply.encode, reply.decode)


class _PacketCodec:
    """Codec of packets, in the form of ``message_codecs``."""

    encode = staticmethod(encode_packet)
    decode = staticmethod(decode_packet)


# Served by the stream manager over TCP; called by the peer with the lower container number.
PEER_SERVICE = RpcService(
    "heronry.v1.StreamManagerForPeers",
    (
        _bidirectional("Data", _PacketCodec, _PacketCodec),
        _bidirectional("Control", message_codecs.PEER_CONTROL, message_codecs.PEER_CONTROL),
    ),
)
# Served by the topology master.
MASTER_SERVICE = RpcService(
    "heronry.v1.TopologyMaster",
    (
        _bidirectional("StreamManager", message_codecs.TO_MASTER, message_codecs.FROM_MASTER),
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
