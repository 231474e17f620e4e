"""What one event leads to: the effects in order, and the count of faults of the other side."""

from __future__ import annotations

from stream_manager.core.effects import Effect, End
from stream_manager.core.neighbours import ProtocolViolation, SequenceFault


class Outcome:
    """Shared by the parts of the stream manager; taken once at the end of each event."""

    def __init__(self) -> None:
        self.violations = 0
        self.sequence_faults = 0
        self._effects: list[Effect] = []

    def add(self, *effects: Effect) -> None:
        """Do these next."""
        self._effects.extend(effects)

    def violated(self, connection: int, who: str, fault: ProtocolViolation) -> None:
        """End a connection whose other end has broken a rule."""
        self.violations += 1
        self.sequence_faults += isinstance(fault, SequenceFault)
        self.add(End(connection, f"{who}: {fault}"))

    def take(self) -> list[Effect]:
        """All effects since the last call."""
        effects, self._effects = self._effects, []
        return effects
