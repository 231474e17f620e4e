"""Which joins become SQL, and what the plan says of those that do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from data_pipeline.core.describe import described
from data_pipeline.core.plan import Plan, Table
from data_pipeline.core.planner import Choice, plan
from heronry.streamlet import Builder, collect, files, session, sliding, to_files, tumbling

PLAIN = {"k": "string", "n": "bigint", "t": "bigint"}


@dataclass
class Click:
    k: str
    t: int
    x: float | None = None
