"""Context of a task: its place in the topology, its metrics and hooks. The method names are those of heronpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from heron_runtime.model.plan import PhysicalPlan
from heronry.api.hooks import TaskHook
from heronry.api.metrics import Metric, as_metric

M = TypeVar("M", bound=Metric)


class TopologyContext:
    """View of the topology from one task, given to ``initialize``. It follows updates of the topology."""

    def __init__(
        self,
        plan: PhysicalPlan,
        task: int,
        config: Mapping[str, Any],
        wake: Callable[[], None] | None = None,
        hooks_changed: Callable[[], None] | None = None,
    ) -> None:
        self._plan = plan
        self._task = task
        self._config = dict(config)
        self._wake = wake
        self._hooks_changed = hooks_changed
        self.metrics: dict[str, Metric] = {}
        self.hooks: list[TaskHook] = []

    def get_topology_name(self) -> str:
        """Return the name of the topology."""
        return self._plan.topology.name

    def get_topology_id(self) -> str:
        """Return the unique id of this submission."""
        return self._plan.topology.id

    def get_component_id(self) -> str:
        """Return the name of this task's component."""
        return self._plan.component_of(self._task)

    def get_task_id(self) -> int:
        """Return the number of this task, starting at 1."""
        return self._task

    def get_task_index(self) -> int:
        """Return the position of this task among the tasks of its component, starting at 0."""
        return self.get_component_tasks(self.get_component_id()).index(self._task)

    def get_component_tasks(self, component: str) -> list[int]:
        """Return the tasks of a component, in order. Raises KeyError for an unknown component."""
        return list(self._plan.tasks_of(component))

    def get_task_to_component_map(self) -> dict[int, str]:
        """Return the component of every task."""
        return {task: self._plan.component_of(task) for task in self._plan.tasks()}

    def get_sources(self, component: str | None = None) -> dict[tuple[str, str], str]:
        """Return the inputs of a component (default: this one): (component, stream) to the kind of grouping."""
        spec = self._plan.topology.component(component or self.get_component_id())
        return {(source.component, source.stream): source.grouping.kind.value for source in spec.inputs}

    def get_this_sources(self) -> dict[tuple[str, str], str]:
        """Return the inputs of this component."""
        return self.get_sources()

    def get_targets(self, component: str | None = None) -> dict[str, dict[str, str]]:
        """Return the readers of a component (default: this one): stream to component to the kind of grouping."""
        name = component or self.get_component_id()
        targets: dict[str, dict[str, str]] = {out.name: {} for out in self._plan.topology.component(name).outputs}
        for edge in self._plan.topology.edges():
            if edge.source == name:
                targets.setdefault(edge.stream, {})[edge.destination] = edge.grouping.kind.value
        return targets

    def get_fields(self, component: str, stream: str) -> tuple[str, ...]:
        """Return the field names of a stream. Raises KeyError for an unknown component or stream."""
        schema = self._plan.topology.component(component).output(stream)
        if schema is None:
            raise KeyError(f"component {component} has no stream {stream!r}")
        return schema.fields

    def get_cluster_config(self) -> dict[str, Any]:
        """Return the configuration of the topology, overridden by that of this component."""
        return dict(self._config)

    def get_container_id(self) -> int:
        """Return the number of the container that this task runs in."""
        return self._plan.container_of(self._task)

    def register_metric(self, name: str, metric: M, time_bucket_in_sec: float | None = None) -> M:
        """Register a metric and return it.

        Args:
            name: Name that is unique in the task and does not begin with two underscores.
            metric: A ``CountMetric``, ``MultiCountMetric``, ``GaugeMetric``, ``MeanMetric`` or ``LatencyMetric``.
            time_bucket_in_sec: Ignored; ``heron.metrics.interval.secs`` applies. Heron programs pass it.

        Raises:
            ValueError: The name is in use or invalid.
            TypeError: The object is not a metric.
        """
        if name in self.metrics:
            raise ValueError(f"metric {name!r} is registered already")
        if not name or name.startswith("__"):
            raise ValueError(f"metric name {name!r}: choose one that does not begin with two underscores")
        self.metrics[name] = as_metric(metric)
        return metric

    def add_task_hook(self, hook: TaskHook) -> None:
        """Add a hook. Raises TypeError for an object that is not a TaskHook."""
        if not isinstance(hook, TaskHook):
            raise TypeError(
                f"{type(hook).__name__} is not a task hook\nhint: derive it from heronry.api.hooks.TaskHook"
            )
        hook.prepare(self.get_cluster_config(), self)
        self.hooks.append(hook)
        if self._hooks_changed is not None:
            self._hooks_changed()

    def wake_up(self) -> None:
        """Call ``next_tuple`` immediately. Callable from any thread, such as one that receives data."""
        if self._wake is not None:
            self._wake()

    # Called by the runtime.

    def follow(self, plan: PhysicalPlan) -> None:
        """Use another plan, after an update."""
        self._plan = plan
