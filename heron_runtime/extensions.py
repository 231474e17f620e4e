"""Extension points: tables of built-in names, and entry points for installed distributions.

Theory of operation. An extension point is a table from names to ``module:attribute`` and an entry point group of Python
packaging. A built-in name costs one import. Any other name requires a search of the installed distributions, which
takes milliseconds. A name is therefore looked up once, when a topology is submitted or a process starts, and never
while a tuple is processed. The tables hold strings and import nothing, so this module can be a layer below the packages
that the strings name.

A distribution is found only where it is installed, and processes run in different places. ``where`` tells users which
place is relevant. ``docs/how-to/extending.md`` is the guide.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from heron_runtime.failures import Failure, did_you_mean, listing

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GUIDE = "docs/how-to/extending.md"


class ExtensionError(Failure):
    """Extension name that is unknown, offered by several distributions, or cannot be loaded."""

    def line(self) -> str:
        """Return message and cure as one line, for a log or a list of faults."""
        return f"{self.message} ({self.cure.rstrip('.')})"


@dataclass(frozen=True)
class ExtensionPoint:
    """Kind of extension that can be plugged in. ``what`` is its name in messages."""

    what: str
    group: str
    where: str
    built_in: Mapping[str, str] = field(default_factory=dict)

    def find(self, name: str) -> str:
        """Return the ``module:attribute`` of a name without importing it. Raises ExtensionError."""
        return self.built_in.get(name) or self._plugged_in(name).value

    def load(self, name: str) -> Any:
        """Import and return the extension of this name.

        Raises:
            ExtensionError: The name is unknown or ambiguous, or the plug-in cannot be imported.
            Exception: A built-in extension cannot be imported.
        """
        if name in self.built_in:
            return pkgutil.resolve_name(self.built_in[name])
        point = self._plugged_in(name)
        try:
            return point.load()
        except Exception as error:  # the plug-in's module may raise anything when it is imported
            raise ExtensionError(
                f"the {self.what} {name!r} of {_distribution(point)} cannot be loaded from {point.value}: "
                f"{type(error).__name__}: {error}",
                "Install a version of it that fits, with all it requires.",
            ) from error

    def names(self) -> list[str]:
        """Return all names that are available in this process, sorted."""
        return sorted({*self.built_in, *(point.name for point in self._offers())})

    def _offers(self) -> list[EntryPoint]:
        from importlib.metadata import entry_points  # here, since most processes use only what is built in

        return list(entry_points(group=self.group))

    def _plugged_in(self, name: str) -> EntryPoint:
        points = [point for point in self._offers() if point.name == name]
        if not points:
            known = self.names()
            raise ExtensionError(
                f"unknown {self.what} {name!r}; known: {listing(known)}{did_you_mean(name, known)}",
                f"A plug-in must be installed {self.where}, with the entry point group {self.group}: see {GUIDE}.",
            )
        if len(points) > 1:
            raise ExtensionError(
                f"the {self.what} {name!r} is offered by {' and by '.join(sorted(map(_distribution, points)))}",
                "Uninstall all of them but one.",
            )
        return points[0]


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "a distribution without a name"


METRICS_SINKS = ExtensionPoint(
    "metrics sink",
    "heronry.metrics_sinks",
    "where the containers run",
    {
        "jsonlines": "metrics_manager.sinks.jsonlines:JsonLinesSink",
        "prometheus": "metrics_manager.sinks.prometheus:PrometheusSink",
        "history": "metrics_manager.sinks.history:HistorySink",
        "graphite": "metrics_manager.sinks.text_protocols:GraphiteSink",
        "statsd": "metrics_manager.sinks.text_protocols:StatsdSink",
        "tmanager": "metrics_manager.sinks.topology_master:TopologyMasterSink",
    },
)

PACKING = ExtensionPoint(
    "packing algorithm",
    "heronry.packing",
    "where `heron submit` runs and also, if the cluster has an api server, on its host",
    {
        "round_robin": "heron_control.packing.algorithms:pack_round_robin",
        "first_fit_decreasing": "heron_control.packing.algorithms:pack_first_fit_decreasing",
    },
)

SERIALIZERS = ExtensionPoint(
    "serializer",
    "heronry.serializers",
    "by the topology's requirements.txt, or where `heron submit` runs if it is named there",
    dict.fromkeys(("auto", "msgpack", "pickle", "arrow"), "heron_instance.core.values_codec:ValuesCodec"),
)

GROUPINGS = ExtensionPoint(
    "grouping", "heronry.groupings", "by the topology's requirements.txt, or where the topology is built"
)

STATE_STORES = ExtensionPoint(
    "state store",
    "heronry.state_stores",
    "wherever something reads the state: for commands, api servers, trackers and in the containers",
    {
        "files": "heron_runtime.state.files:store_of_url",
        "memory": "heron_runtime.state.memory:store_of_url",
        "zookeeper": "heron_runtime.state.zookeeper:store_of_url",
        "zookeeper+tls": "heron_runtime.state.zookeeper:store_of_url",
    },
)

SCHEDULERS = ExtensionPoint(
    "scheduler",
    "heronry.schedulers",
    "where the api server runs",
    {name: f"heron_control.schedulers.{name}:scheduler_of" for name in ("local", "docker", "swarm", "k8s")},
)

STREAMLET_SINKS = ExtensionPoint(
    "streamlet sink",
    "heronry.streamlet_sinks",
    "by the requirements.txt of the program, or where it is built",
    {
        name: f"heronry.streamlet.endpoints:{maker}"
        for name, maker in {"files": "to_files", "archive": "archive", "view": "view", "collect": "collect"}.items()
    },
)
