"""What a two-phase sink has prepared: committed when its checkpoint is complete, aborted if it never will be.

A token begins with the name of what it was prepared for, ``generation-checkpoint-task-incarnation``, so whoever finds
it in the outside system can tell whose it is. Tokens of complete checkpoints are committed in order until they are
confirmed, and again after each restore; what the checkpoint restored from does not name, and lower generations have
prepared, never becomes visible (laws S6 and S7).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heron_instance.core.state.kept import NoPlace, Restored
from heron_runtime.model.checkpoints import AdoptionMode, CommitToken
from heronry.api.state import Checkpoint, TwoPhaseSink


class BadToken(ValueError):
    """A sink gave a token by which nobody can tell whose it is."""


class Tokens:
    """Of one task, in one generation. All calls are user code's."""

    def __init__(self, component: Any, generation: int) -> None:
        self._sink = component if isinstance(component, TwoPhaseSink) else None
        self._name = type(component).__name__
        self._generation = generation
        self.unconfirmed: list[CommitToken] = []

    def prepare(self, checkpoint: Checkpoint) -> None:
        """Have the sink prepare. Raises BadToken and what the sink raises."""
        if self._sink is None:
            return
        name = self._sink.prepare(checkpoint)
        if name is None:
            return
        if not isinstance(name, str) or not name.startswith(checkpoint.name):
            raise BadToken(
                f"{type(self._sink).__name__}.prepare returned {name!r:.80}: a token begins with checkpoint.name "
                f"({checkpoint.name}), so that it can be told after a fault whose it is"
            )
        self.unconfirmed.append(CommitToken(checkpoint.number, name))

    def commit(self, complete: int) -> None:
        """Commit everything that was prepared for checkpoints up to this one. Raises what the sink raises."""
        if self._sink is None:
            return
        for token in sorted(token for token in self.unconfirmed if token.checkpoint <= complete):
            self._sink.commit(token.checkpoint, token.name)
            self.unconfirmed.remove(token)

    def restore(self, restored: Restored) -> None:
        """Commit again what the checkpoint names, abort what lower generations left. Of a checkpoint that another
        topology has taken only what waits here: that one has committed the rest, or it wrote elsewhere. Raises NoPlace
        and what the sink raises."""
        if self._sink is None:
            if restored.tokens and restored.adopted is AdoptionMode.WHOLE:
                raise NoPlace(
                    f"{restored.tokens[0].name} was prepared by a TwoPhaseSink, and {self._name} is none now: nobody "
                    "commits it; submit it with --allow-dropped-state if that is well so"
                )
            return
        waiting = None if restored.adopted is AdoptionMode.NO else set(self._sink.prepared())
        for token in restored.tokens:
            if waiting is None or token.name in waiting:
                self._sink.commit(token.checkpoint, token.name)
        self.sweep(restored.known_tokens)

    def sweep(self, known: Iterable[str]) -> None:
        """Abort what lower generations have prepared and nobody knows of."""
        if self._sink is None:
            return
        known = {*known, *(token.name for token in self.unconfirmed)}
        for name in list(self._sink.prepared()):
            generation = generation_of(name)
            if name not in known and generation is not None and generation < self._generation:
                self._sink.abort(name)


def generation_of(token: str) -> int | None:
    """The generation that a token was prepared in; None for a name that is no token."""
    first, dash, _ = token.partition("-")
    return int(first) if dash and first.isdecimal() else None
