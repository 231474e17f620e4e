"""Objects that the parts of one stream manager's core share."""

from __future__ import annotations

from dataclasses import dataclass

from stream_manager.core.backpressure import BackpressureCauses
from stream_manager.core.connections import ConnectionTable
from stream_manager.core.credit import TupleWeights
from stream_manager.core.events import EffectBuffer
from stream_manager.core.forwarding import FrameForwarder
from stream_manager.core.plan import GenerationState
from stream_manager.core.trackers import AckTrackers


@dataclass(frozen=True, slots=True)
class StreamManagerState:
    """State of one stream manager, as ``InstanceProtocol`` and ``PeerProtocol`` use it.

    Attributes:
        connections: Neighbours with their links and credit.
        forwarder: Routes frames, acks and fails to the link of their task.
        trackers: Open roots of the local spouts.
        causes: Backpressure causes of this and of other containers.
        weights: Weight of one tuple for each task.
        generation: Generation whose connections carry frames.
        effects: Effects of the current event.
    """

    connections: ConnectionTable
    forwarder: FrameForwarder
    trackers: AckTrackers
    causes: BackpressureCauses
    weights: TupleWeights
    generation: GenerationState
    effects: EffectBuffer
