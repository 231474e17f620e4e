"""``docs/reference/metrics.md`` out of the table: run it to write the page anew; a test holds the page to it.

python docs/make_metrics_page.py docs/reference/metrics.md
"""

from __future__ import annotations

import sys
from pathlib import Path

from heron_runtime.model.metric_kinds import Key, Metric
from heron_runtime.model.metric_table import SECTIONS

_KEYS = {
    Key.NONE: "",
    Key.STREAM: "/STREAM",
    Key.SOURCE: "/COMPONENT/STREAM",
    Key.INSTANCE: "/INSTANCE",
    Key.OTHER: "/…",
}
_SCALES = {1e-3: "ms", 1e-6: "µs", 1e-9: "ns"}
_INTRODUCTION = """# Metrics

Every metric there is, by who counts it. This page is made from `heron_runtime/model/metric_table.py` by
`python docs/make_metrics_page.py docs/reference/metrics.md`; a test compares them.

**Where to see them.** `heron metrics`, the tracker (`/topologies/metrics` and below), the web page and the
JSON lines use the Heron names, with the key behind a slash (`__execute-count/split/default`). Prometheus uses the other
ones; every sample has the labels `topology`, `component`, `instance`, `container` and `stream` (the key). Names that a
topology registers itself are served as they are, and are called `heron_user_NAME` in Prometheus.

**Kinds.** Counters are totals since the topology began, over all restarts of a process; the tracker gives them, and
their rates, for any interval up to three hours as well. Gauges have a last value, and a least, greatest and mean value
of an interval. Latencies are distributions: percentiles of all tuples, never means of means. The topology master keeps
points of 5 seconds for 10 minutes and of a minute for 3 hours, of all three kinds; what is kept longer, and of killed
topologies, is in `docs/how-to/history.md`.

**Reports** are sent each `heron.metrics.interval.secs` (5 s), so a counter may be that much behind.
"""


def unit(metric: Metric) -> str:
    """Of the Heron name."""
    if metric.scale in _SCALES:
        return _SCALES[metric.scale]
    words = metric.prometheus.removesuffix("_total").split("_")
    return next((word for word in ("bytes", "seconds", "cores") if word in words[-2:]), "")


def page() -> str:
    """The whole text."""
    parts = [_INTRODUCTION]
    for section in SECTIONS:
        rows = [
            f"| `{m.name}{_KEYS[m.key]}` | `{m.prometheus}` | {m.kind.value} | {unit(m)} | {m.help} |"
            for m in section.metrics
        ]
        head = f"## {section.title}\nComponent: {section.component}. {section.when}\n"
        columns = ["| Heron name | Prometheus name | kind | unit | meaning |", "|---|---|---|---|---|"]
        parts.append("\n".join([head, *columns, *rows]))
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
