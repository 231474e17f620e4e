"""Query parameters that many paths share, with their bounds and their words for ``/docs``."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query

from heron_runtime.model.containers import LAST_STANDBY
from heron_tracker.core.timeline import LONGEST_RANGE

MAX_NAME = 256
MAX_LIST = 200
MAX_TIME = 4_102_444_800  # the year 2100

Text = Annotated[str, Query(max_length=MAX_NAME)]
Cluster = Annotated[str, Query(description="cluster, as /clusters names it", min_length=1, max_length=MAX_NAME)]
Environ = Annotated[str, Query(description="environment", min_length=1, max_length=MAX_NAME)]
Topology = Annotated[str, Query(description="name of the topology", min_length=1, max_length=MAX_NAME)]
Role = Annotated[str | None, Query(description="role; may be left out", max_length=MAX_NAME)]
Component = Annotated[
    str, Query(description="component, __stmgr__, __tmanager__, …; * for all", min_length=1, max_length=MAX_NAME)
]
Instance = Annotated[str, Query(description="instance, as container_1_word_3", min_length=1, max_length=MAX_NAME)]


def _several(alias: str, description: str) -> Any:
    return Query(alias=alias, description=f"{description}; may be repeated", max_length=MAX_LIST, default_factory=list)


Clusters = Annotated[list[Text], _several("cluster", "only these")]
Environs = Annotated[list[Text], _several("environ", "only these")]
Topologies = Annotated[list[Text], _several("topology", "only these; needs cluster and environ")]
Instances = Annotated[list[Text], _several("instance", "only these")]
MetricNames = Annotated[list[Text], _several("metricname", "Heron names, with or without key")]
Interval = Annotated[int, Query(description="of the last seconds; -1: since the start", ge=-1, le=LONGEST_RANGE)]
Time = Annotated[int, Query(description="seconds since 1970, UTC", ge=0, le=MAX_TIME)]
Limit = Annotated[int, Query(description="at most so many", ge=1, le=1000)]
Cursor = Annotated[str | None, Query(description="`next` of the page before", max_length=2048)]
Container = Annotated[int, Query(description="number of the container", ge=0, le=LAST_STANDBY)]
FilePath = Annotated[str, Query(description="below the container's log folder", max_length=1024)]


def names_of(metricname: list[str]) -> tuple[str, ...]:
    """The metrics to ask a topology master for: a name without key may end in a slash."""
    return tuple(bare for name in metricname if (bare := name.rstrip("/")))
