"""Heronry: stream processing in the design of Twitter Heron, in Python. This package exports the topology API.

Names are loaded on first use, so that ``import heronry`` is cheap in the processes of the service.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heron_runtime.model.dataflow import FailReason
    from heronry.api.builder import TopologyBuilder
    from heronry.api.component import BasicBolt, BatchBolt, Bolt, Spout
    from heronry.api.config import Config
    from heronry.api.context import TopologyContext
    from heronry.api.dead_letters import DeadLetter
    from heronry.api.errors import TopologyError
    from heronry.api.grouping import Grouping
    from heronry.api.hooks import TaskHook
    from heronry.api.spec import Stream
    from heronry.api.state import Checkpoint, StatefulComponent, TwoPhaseSink
    from heronry.api.topology import Topology
    from heronry.api.tuples import Tuple, TupleBatch

__all__ = [
    "BasicBolt",
    "BatchBolt",
    "Bolt",
    "Checkpoint",
    "Config",
    "DeadLetter",
    "FailReason",
    "Grouping",
    "Spout",
    "StatefulComponent",
    "Stream",
    "TaskHook",
    "Topology",
    "TopologyBuilder",
    "TopologyContext",
    "TopologyError",
    "Tuple",
    "TupleBatch",
    "TwoPhaseSink",
]

_HOME = {
    "BasicBolt": "heronry.api.component",
    "BatchBolt": "heronry.api.component",
    "Bolt": "heronry.api.component",
    "Checkpoint": "heronry.api.state",
    "Config": "heronry.api.config",
    "DeadLetter": "heronry.api.dead_letters",
    "FailReason": "heron_runtime.model.dataflow",
    "Grouping": "heronry.api.grouping",
    "Spout": "heronry.api.component",
    "StatefulComponent": "heronry.api.state",
    "Stream": "heronry.api.spec",
    "TaskHook": "heronry.api.hooks",
    "Topology": "heronry.api.topology",
    "TopologyBuilder": "heronry.api.builder",
    "TopologyContext": "heronry.api.context",
    "TopologyError": "heronry.api.errors",
    "Tuple": "heronry.api.tuples",
    "TupleBatch": "heronry.api.tuples",
    "TwoPhaseSink": "heronry.api.state",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'heronry' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
