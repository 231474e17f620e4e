"""Codecs of all messages except packets (`data_codec`)."""

from __future__ import annotations

from heron_runtime.wire import container, control, master, metrics
from heron_runtime.wire.codec import Codec, UnionCodec
from heron_runtime.wire.generated import (
    heronry_container_pb2,
    heronry_control_pb2,
    heronry_master_pb2,
    heronry_metrics_pb2,
)
from heron_runtime.wire.store_codecs import (
    CHECKPOINT_RECORD,
    CONTAINER_LOCATION,
    EXECUTION_STATE,
    MASTER_EPOCH,
    MASTER_LOCATION,
    PACKING_PLAN,
    PHYSICAL_PLAN,
    SCHEDULER_LOCATION,
    TOPOLOGY,
    WANTED_STATE,
)

__all__ = [
    "CHECKPOINT_RECORD", "CONTAINER_LOCATION", "EXECUTION_STATE", "MASTER_EPOCH", "MASTER_LOCATION", "PACKING_PLAN",
    "PHYSICAL_PLAN", "SCHEDULER_LOCATION", "TOPOLOGY", "WANTED_STATE",
]  # fmt: skip

# Control streams.
INSTANCE_CONTROL: UnionCodec[control.InstanceControl] = UnionCodec(
    control.InstanceControl, heronry_control_pb2.InstanceControl
)
PEER_CONTROL: UnionCodec[control.PeerControl] = UnionCodec(control.PeerControl, heronry_control_pb2.PeerControl)

# The topology master.
TO_MASTER: UnionCodec[master.ToMaster] = UnionCodec(master.ToMaster, heronry_master_pb2.ToMaster)
FROM_MASTER: UnionCodec[master.FromMaster] = UnionCodec(master.FromMaster, heronry_master_pb2.FromMaster)
SET_STATE = Codec(master.SetState, heronry_master_pb2.SetState)
TAKE_CHECKPOINT = Codec(master.TakeCheckpoint, heronry_master_pb2.TakeCheckpoint)
RESTORE_STATE = Codec(master.RestoreState, heronry_master_pb2.RestoreState)
STATUS_REQUEST = Codec(master.StatusRequest, heronry_master_pb2.StatusRequest)
MASTER_STATUS = Codec(master.MasterStatus, heronry_master_pb2.MasterStatus)
PUBLISH_METRICS = Codec(master.PublishMetrics, heronry_master_pb2.PublishMetrics)
PUBLISH_REPLY = Codec(master.PublishReply, heronry_master_pb2.PublishReply)
METRICS_REQUEST = Codec(master.MetricsRequest, heronry_master_pb2.MetricsRequest)
METRICS_REPLY = Codec(master.MetricsReply, heronry_master_pb2.MetricsReply)
TIMELINE_REQUEST = Codec(master.TimelineRequest, heronry_master_pb2.TimelineRequest)
TIMELINE_REPLY = Codec(master.TimelineReply, heronry_master_pb2.TimelineReply)
EXCEPTIONS_REQUEST = Codec(master.ExceptionsRequest, heronry_master_pb2.ExceptionsRequest)
EXCEPTIONS_REPLY = Codec(master.ExceptionsReply, heronry_master_pb2.ExceptionsReply)

# Metrics managers.
PROCESS_METRICS = Codec(metrics.ProcessMetrics, heronry_metrics_pb2.ProcessMetrics)
REPORTS = Codec(metrics.Reports, heronry_metrics_pb2.Reports)
METRICS_ACK = Codec(metrics.MetricsAck, heronry_metrics_pb2.MetricsAck)

# heron_container and heron_scheduler.
CONTAINER_STATUS_REQUEST = Codec(container.ContainerStatusRequest, heronry_container_pb2.ContainerStatusRequest)
CONTAINER_STATUS = Codec(container.ContainerStatus, heronry_container_pb2.ContainerStatus)
LIST_FILES = Codec(container.ListFiles, heronry_container_pb2.ListFiles)
FILE_LIST = Codec(container.FileList, heronry_container_pb2.FileList)
READ_FILE = Codec(container.ReadFile, heronry_container_pb2.ReadFile)
FILE_DATA = Codec(container.FileData, heronry_container_pb2.FileData)
RESTART_CONTAINER = Codec(container.RestartContainer, heronry_container_pb2.RestartContainer)
STACKS_REQUEST = Codec(container.StacksRequest, heronry_container_pb2.StacksRequest)
STACKS = Codec(container.Stacks, heronry_container_pb2.Stacks)
RESTART_REPLY = Codec(container.RestartReply, heronry_container_pb2.RestartReply)
SCHEDULER_STATUS_REQUEST = Codec(container.SchedulerStatusRequest, heronry_container_pb2.SchedulerStatusRequest)
SCHEDULER_STATUS = Codec(container.SchedulerStatus, heronry_container_pb2.SchedulerStatus)


def prepare_all() -> None:
    """Build all converters now. A process calls this before it forks, so that its children need not build them."""
    for codec in list(globals().values()):
        if isinstance(codec, Codec | UnionCodec):
            codec.prepare()
