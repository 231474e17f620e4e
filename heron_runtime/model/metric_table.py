"""The table behind ``heron_runtime.model.metrics``: every metric, by who counts it and when.
``docs/reference/metrics.md`` shows it.
"""

from __future__ import annotations

from typing import NamedTuple

from heron_runtime.model.instance_metrics import EXECUTOR_METRICS, GATEWAY_METRICS
from heron_runtime.model.metric_kinds import Metric
from heron_runtime.model.system_metrics import (
    CONTAINER_METRICS,
    METRICS_MANAGER_METRICS,
    PROCESS_METRICS,
    STREAM_MANAGER_METRICS,
    TOPOLOGY_MASTER_METRICS,
)


class Section(NamedTuple):
    """Metrics of one origin: the process that counts them (``component`` as the tracker names it), and when."""

    title: str
    component: str
    when: str
    metrics: tuple[Metric, ...]


SECTIONS: tuple[Section, ...] = (
    Section(
        "Instances: the executor",
        "the name of the spout or bolt",
        "Counted once a batch or a burst of `next_tuple`, never once a tuple; gauges are read once a second.",
        EXECUTOR_METRICS,
    ),
    Section(
        "Instances: the gateway",
        "the name of the spout or bolt",
        "Counted once a packet; gauges are read once a second.",
        GATEWAY_METRICS,
    ),
    Section(
        "Every process, about itself",
        "all of them",
        "Read for each report. Instances report the `__py-…` names, the others the `__process/…` ones; both have the "
        "same names in Prometheus. Collections, their time and the lag of the event loop have one name everywhere.",
        PROCESS_METRICS,
    ),
    Section(
        "Stream managers",
        "`__stmgr__`",
        "Counted once a packet; times of pressure with each tick of 100 ms; gauges are read for each report.",
        STREAM_MANAGER_METRICS,
    ),
    Section(
        "Topology master",
        "`__tmanager__`",
        "Counted when it happens; gauges are read for each report. What is about the topology as a whole is reported "
        "by the master that leads.",
        TOPOLOGY_MASTER_METRICS,
    ),
    Section(
        "Metrics managers",
        "`__metricsmgr__`",
        "Counted once a report and once a beat of a sink.",
        METRICS_MANAGER_METRICS,
    ),
    Section(
        "heron_container and heron_scheduler",
        "`__container__`, `__scheduler__`",
        "Counted when it happens; gauges for each report. The first tells of its processes, the second of containers.",
        CONTAINER_METRICS,
    ),
)

METRIC_TABLE: tuple[Metric, ...] = tuple(metric for section in SECTIONS for metric in section.metrics)
