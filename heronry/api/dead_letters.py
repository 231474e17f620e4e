"""Dead letters: records that a bolt cannot process, emitted to a separate stream instead of failing the topology.

A bolt class that declares ``dead_letters = "bad"`` gets an output stream of that name, whose tuples have the fields of
``DeadLetter``. This needs EFFECTIVELY_ONCE, since only checkpoints can undo the changes that a call of ``process`` made
before it raised.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from heron_runtime.model.topology import StreamSchema, TopologyDefinition
from heronry.api.component import Bolt
from heronry.api.config import Config


class DeadLetter(NamedTuple):
    """A record that ``process`` of ``component`` raised on, as a tuple of the declared stream: ``DeadLetter.of(tup)``.

    ``source`` and ``stream`` say where the record came from, ``values`` is what it was (empty where it would make the
    letter larger than a tuple may be). ``error`` is class and message, ``failed: reason`` where ``process`` called
    ``self.fail``; ``traceback`` ends where it raised. Both have 8 192 characters at most.
    """

    component: str
    task: int
    source: str
    stream: str
    values: tuple[Any, ...]
    error: str
    traceback: str

    @classmethod
    def of(cls, tup: Any) -> DeadLetter:
        """Return the dead letter in a tuple."""
        return cls._make(tup.values)


def dead_letter_stream(cls: Any) -> str:
    """Return the stream that a component class declares for dead letters, or an empty text."""
    declared = getattr(cls, "dead_letters", "")
    return declared if isinstance(declared, str) else ""


def dead_letter_schemas(cls: Any) -> Iterator[StreamSchema]:
    """Return the output streams for dead letters: one, or none."""
    if dead_letter_stream(cls):
        yield StreamSchema(dead_letter_stream(cls), DeadLetter._fields)


def check_dead_letters(cls: type, mode: str, serializer: str, outputs: list[StreamSchema]) -> Iterator[str]:
    """Yield problems of a dead letter declaration. ``outputs`` are the other streams of the component."""
    declared = getattr(cls, "dead_letters", "")
    if not declared:
        return
    what = f"{cls.__name__} declares dead_letters = {declared!r}"
    if not isinstance(declared, str):
        yield f"{what}; write the name of a stream, for example dead_letters = 'bad'"
        return
    if not issubclass(cls, Bolt):
        yield f"{what}, but only what a bolt's process raises on becomes a dead letter; remove it"
        return
    if mode != Config.EFFECTIVELY_ONCE:
        yield (
            f"{what}, and with {mode} what the failing call has done is not undone; set "
            f"{Config.TOPOLOGY_RELIABILITY_MODE} to {Config.EFFECTIVELY_ONCE}, or remove it"
        )
    if hasattr(cls, "process_batch"):
        yield (
            f"{what}, but process_batch takes many records at once, so the record that failed is unknown; "
            "define process instead"
        )
    if serializer == "msgpack":
        yield f"{what}, and a letter holds a tuple, which topology.serializer msgpack does not carry: use auto"
    if any(schema.name == declared for schema in outputs):
        yield f"{what}, which makes that stream with the fields of heronry.DeadLetter; take it out of outputs"


def find_unread_dead_letters(definition: TopologyDefinition, component: str, cls: Any) -> Iterator[str]:
    """Yield a problem if the dead letters of a component have no reader."""
    stream = dead_letter_stream(cls)
    edges = definition.edges()
    if stream and not any(edge.source == component and edge.stream == stream for edge in edges):
        yield (
            f"component {component!r}: declares dead_letters = {stream!r}, and no bolt reads that stream, so letters "
            f"would be lost; give a bolt inputs={{({component!r}, {stream!r}): Grouping.SHUFFLE}}"
        )
