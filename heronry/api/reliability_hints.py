"""Warnings about delivery guarantees: a topology without a reliability mode loses tuples silently after a failure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from heron_runtime.model.settings import Keys

_CONSEQUENCE = (
    f"but the topology sets no {Keys.TOPOLOGY_RELIABILITY_MODE}: tuples are not tracked, ack is called immediately, "
    "and tuples lost by a fault are not emitted again"
)
RELIABILITY_CURE = (
    f'Add config = {{"{Keys.TOPOLOGY_RELIABILITY_MODE}": "ATLEAST_ONCE"}} to the topology, '
    'or set "ATMOST_ONCE" explicitly.'
)


def untracked_note(component: str) -> str:
    """Return the warning for the log of a spout that emits ids without effect."""
    return f"{component} emits tuples with message ids, {_CONSEQUENCE}. {RELIABILITY_CURE}"


def hearing_note(spouts: Mapping[str, Sequence[str]]) -> str:
    """Return the warning at submit about spouts with methods that are not called without a reliability mode."""
    named = ", ".join(f"spout {name!r} {_does(methods)}" for name, methods in spouts.items())
    return f"{named}, {_CONSEQUENCE}"


def _does(methods: Sequence[str]) -> str:
    return "emits tuples with message ids" if "tup_id" in methods else f"defines {' and '.join(methods)}"


def never_called_note(spouts: Mapping[str, Sequence[str]]) -> str:
    """Return the warning at submit about spouts with methods that are not called with EFFECTIVELY_ONCE."""
    named = ", ".join(f"spout {name!r} {_does(methods)}" for name, methods in spouts.items())
    return (
        f"{named}: with EFFECTIVELY_ONCE no tuple is tracked, so they are never called and message ids change nothing; "
        "after a fault the spout continues from self.keyed or self.state of the last checkpoint"
    )


def shown_again_note(bolts: Iterable[str]) -> str:
    """Return the warning at submit about bolts without readers that may repeat their effects (EFFECTIVELY_ONCE)."""
    named = ", ".join(f"bolt {name!r}" for name in bolts)
    return (
        f"{named}: it has no readers and is not a TwoPhaseSink, so with EFFECTIVELY_ONCE its state is kept, but what "
        "it does outside (prints, writes, calls) it does again for the records since the last checkpoint after a fault"
    )


SHOWN_AGAIN_CURE = (
    "Make it a heronry.TwoPhaseSink (heronry.connect has files, PostgreSQL, HTTP), or declare its effect in the class: "
    'output_effect = "idempotent", or "at_least_once".'
)


def reliability_unsaid(config: Mapping[str, Any]) -> bool:
    """True if the configuration leaves the reliability mode at its default, ATMOST_ONCE, without saying so."""
    return config.get(Keys.TOPOLOGY_RELIABILITY_MODE.name) is None
