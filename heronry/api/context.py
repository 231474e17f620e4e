"""What a component may ask about its place in the topology (``initialize(config, context)``). Names are heronpy's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from heron_runtime.model.plan import PhysicalPlan
from heronry.api.hooks import TaskHook
from heronry.api.metrics import Metric, as_metric


class TopologyContext:
    """A task's view of the topology. Follows the plan: after an update it answers from the new one."""

    def __init__(
        self,
        plan: PhysicalPlan,
        task: int,
        config: Mapping[str, Any],
        wake: Callable[[], None] | None = None,
    ) -> None:
        self._plan = plan
        self._task = task
        self._config = dict(config)
        self._wake = wake
        self._hooks_changed: Callable[[], None] | None = None
        self.metrics: dict[str, Metric] = {}
        self.hooks: list[TaskHook] = []

    def get_topology_name(self) -> str:
        """The topology's name."""
        return self._plan.topology.name

    def get_topology_id(self) -> str:
        """What tells it from a namesake that was submitted before or after."""
        return self._plan.topology.id

    def get_component_id(self) -> str:
        """This task's component."""
        return self._plan.component_of(self._task)

    def get_task_id(self) -> int:
        """This task, from 1 up."""
        return self._task

    def get_task_index(self) -> int:
        """This task's place among the tasks of its component, from 0 up."""
        return self.get_component_tasks(self.get_component_id()).index(self._task)

    def get_component_tasks(self, component: str) -> list[int]:
        """The tasks of a component, in order. Raises KeyError for a component there is not."""
        return list(self._plan.tasks_of(component))

    def get_task_to_component_map(self) -> dict[int, str]:
        """Every task and its component."""
        return {task: self._plan.component_of(task) for task in self._plan.tasks()}

    def get_sources(self, component: str | None = None) -> dict[tuple[str, str], str]:
        """What a component (this one by default) reads: (component, stream) to the kind of grouping."""
        spec = self._plan.topology.component(component or self.get_component_id())
        return {(source.component, source.stream): source.grouping.kind.value for source in spec.inputs}

    def get_this_sources(self) -> dict[tuple[str, str], str]:
        """What this component reads."""
        return self.get_sources()

    def get_targets(self, component: str | None = None) -> dict[str, dict[str, str]]:
        """Who reads a component (this one by default): stream to (component to kind of grouping)."""
        name = component or self.get_component_id()
        found: dict[str, dict[str, str]] = {out.name: {} for out in self._plan.topology.component(name).outputs}
        for edge in self._plan.topology.edges():
            if edge.source == name:
                found.setdefault(edge.stream, {})[edge.destination] = edge.grouping.kind.value
        return found

    def get_fields(self, component: str, stream: str) -> tuple[str, ...]:
        """The fields of a stream. Raises KeyError."""
        schema = self._plan.topology.component(component).output(stream)
        if schema is None:
            raise KeyError(f"component {component} has no stream {stream!r}")
        return schema.fields

    def get_cluster_config(self) -> dict[str, Any]:
        """The topology's configuration with this component's own laid over it."""
        return dict(self._config)

    def get_container_id(self) -> int:
        """The container this task runs in."""
        return self._plan.container_of(self._task)

    def register_metric(self, name: str, metric: Any, time_bucket_in_sec: float | None = None) -> Any:
        """Report ``metric`` under ``name``; returns it. The interval is the topology's, a third argument is ignored.

        Raises ValueError for a name that is taken or begins with two underscores, TypeError for what is no metric.
        """
        if name in self.metrics:
            raise ValueError(f"metric {name!r} is registered already")
        if not name or name.startswith("__"):
            raise ValueError(f"metric name {name!r}: choose one that does not begin with two underscores")
        self.metrics[name] = as_metric(metric)
        return metric

    def add_task_hook(self, hook: TaskHook) -> None:
        """Call ``hook`` from now on. Raises TypeError for what is no TaskHook."""
        if not isinstance(hook, TaskHook):
            raise TypeError(f"{type(hook).__name__} is no task hook: derive it from heronry.api.hooks.TaskHook")
        hook.prepare(self.get_cluster_config(), self)
        self.hooks.append(hook)
        if self._hooks_changed is not None:
            self._hooks_changed()

    def wake_up(self) -> None:
        """Have ``next_tuple`` called at once. For spouts whose data arrives on a thread of their own (any thread)."""
        if self._wake is not None:
            self._wake()

    # For the runtime.

    def follow(self, plan: PhysicalPlan) -> None:
        """Answer from this plan."""
        self._plan = plan

    def on_hooks_changed(self, call: Callable[[], None]) -> None:
        """Be told when a hook is added."""
        self._hooks_changed = call
