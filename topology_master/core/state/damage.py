"""The manifest of the last complete checkpoint cannot be read, and somebody wants to go back to an older one.

Nothing is decided then by itself, for nobody could be restored from the last one, and an older one is never taken in
silence. Who asks for one by its number, and says that output may come again, begins a new history there, as by any
restore to an older checkpoint; what is damaged lies behind it and is struck off. The last one's turn is not known
here, so of two checkpoints of one turn the newest is taken for complete: at worst one that was written whole and never
became the last one, which is a state of the topology, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from heron_runtime.model.checkpoints import CheckpointRecord, Manifest
from heron_runtime.model.generations import Generation, Phase
from topology_master.core.events import RestoreRequested
from topology_master.core.state.generations import Generations
from topology_master.core.state.retention import kept


@dataclass(frozen=True, slots=True)
class Unread:
    """What the store says while the last manifest cannot be read, and why that is so."""

    record: CheckpointRecord
    generation: Generation  # of the plan that stands
    fault: str

    def past(self, asked: RestoreRequested, keep: int) -> Manifest | str:
        """The older checkpoint that is asked for; or why it cannot be gone back to."""
        complete = self.record.complete
        readable = {number: found for number, found in asked.manifests.items() if found is not None}
        there = sorted(number for number in kept(asked.manifests, complete, keep) if number in readable)
        known = f"whole, and kept, are {', '.join(map(str, there)) or 'none'}"
        if asked.checkpoint not in there or asked.checkpoint == complete:
            what = "the last checkpoint" if asked.checkpoint in (0, complete) else f"checkpoint {asked.checkpoint}"
            return f"{what} cannot be gone back to: {self.fault}; {known}"
        if not asked.repeat_output:
            return (
                f"the last checkpoint is damaged ({self.fault}); what was written behind checkpoint "
                f"{asked.checkpoint}, up to {complete}, would be written again; say --repeat-output if that is well so"
            )
        return readable[asked.checkpoint]

    def wanted(self, back: Manifest, asked: str) -> Generation | None:
        """The generation that begins there."""
        text = f"{asked}, and checkpoints behind it are struck off: {self.fault}"
        found = Generations(self.generation).wanted(back.checkpoint, asked=text)
        return found if found is None or found.phase is Phase.RESTORING else None
