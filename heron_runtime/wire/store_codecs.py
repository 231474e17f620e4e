"""Codecs of stored records, in a separate module so that commands load them without the messages of processes."""

from __future__ import annotations

from heron_runtime.model.checkpoints import CheckpointRecord
from heron_runtime.model.plan import PackingPlan, PhysicalPlan
from heron_runtime.model.records import (
    ContainerLocation,
    ExecutionState,
    MasterEpoch,
    MasterLocation,
    SchedulerLocation,
    WantedState,
)
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.wire.codec import Codec
from heron_runtime.wire.generated import heronry_state_pb2, heronry_topology_pb2

TOPOLOGY = Codec(TopologyDefinition, heronry_topology_pb2.Topology)
PACKING_PLAN = Codec(PackingPlan, heronry_topology_pb2.PackingPlan)
PHYSICAL_PLAN = Codec(PhysicalPlan, heronry_topology_pb2.PhysicalPlan)
EXECUTION_STATE = Codec(ExecutionState, heronry_state_pb2.ExecutionState)
MASTER_LOCATION = Codec(MasterLocation, heronry_state_pb2.MasterLocation)
SCHEDULER_LOCATION = Codec(SchedulerLocation, heronry_state_pb2.SchedulerLocation)
CONTAINER_LOCATION = Codec(ContainerLocation, heronry_state_pb2.ContainerLocation)
MASTER_EPOCH = Codec(MasterEpoch, heronry_state_pb2.MasterEpoch)
WANTED_STATE = Codec(WantedState, heronry_state_pb2.WantedState)
CHECKPOINT_RECORD = Codec(CheckpointRecord, heronry_state_pb2.CheckpointRecord)
