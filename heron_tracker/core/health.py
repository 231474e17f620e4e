"""How a topology is, in a few figures: lag, what failed and why, deaths of stream managers, what was lost, CPU and
memory used against reserved (the Heron paper, section 6.3). Pure.

All of it is since the start of the topology, but for lag, CPU and memory, which are now (the lag with the greatest of
the last three hours).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heron_runtime.model.metrics import FAILED_BY_REASON, split_name
from heron_runtime.wire.master import MetricsReply, MetricValue
from heron_tracker.core.plain import number

LAG, DEATHS = "__topology-lag-ms", "__stream_manager_deaths"
USED = {"cpu": "__used-cpu-cores", "memory": "__used-memory-bytes"}
RESERVED = {"cpu": "__reserved-cpu-cores", "memory": "__reserved-memory-bytes"}
LOST = ("__lost_on_break", "__gateway-lost-on-break")
PAUSED_MS = "__server/__time_spent_back_pressure_aggr"
# What to ask the master for, since the start.
HEALTH_METRICS = (LAG, DEATHS, *USED.values(), *RESERVED.values(), *LOST, PAUSED_MS, FAILED_BY_REASON)


def health(reply: MetricsReply | None, components: Mapping[str, bool]) -> dict[str, Any] | None:
    """None when the master does not answer; a lag of None: not known yet, or nothing is tracked.

    ``components``: name → is it a spout.
    """
    if reply is None:
        return None
    by_base: dict[str, list[MetricValue]] = {}
    for value in reply.values:
        by_base.setdefault(split_name(value.name).base, []).append(value)

    def total(name: str) -> float:
        return sum(v.total for v in by_base.get(name, ()))

    lag = by_base.get(LAG)
    roots = [v for v in by_base.get(FAILED_BY_REASON, ()) if components.get(v.component)]
    return {
        "lag_ms": number(total(LAG)) if lag else None,
        "lag_max_ms": number(max(v.maximum for v in lag)) if lag else None,
        "failed_by_reason": _reasons(roots),
        "stream_manager_deaths": number(total(DEATHS)),
        "lost_tuples": number(sum(total(name) for name in LOST)),
        "paused_ms": number(max((v.total for v in by_base.get(PAUSED_MS, ())), default=0.0)),
        **{
            what: {"used": number(total(USED[what])), "reserved": number(total(RESERVED[what]))}
            if USED[what] in by_base
            else None
            for what in USED
        },
    }


def _reasons(values: list[MetricValue]) -> list[dict[str, Any]]:
    """Reason, who failed them (None: nobody did, as with a timeout), how many; the most frequent first."""
    sums: dict[str, float] = {}
    for value in values:
        key = split_name(value.name).key
        sums[key] = sums.get(key, 0.0) + value.total
    parts = ((*key.partition("/"), total) for key, total in sorted(sums.items(), key=lambda item: (-item[1], item[0])))
    return [{"reason": kind, "component": who or None, "count": number(total)} for kind, _, who, total in parts]
