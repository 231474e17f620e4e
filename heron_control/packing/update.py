"""Plan of ``heron update``: new definition and packing plan of a running topology, and the differences. Pure.

A request names components with their number of tasks, the number of containers, settings, a container whose tasks move
to a new one, or several of these. Everything else stays, and tasks stay where they are if possible (``repack``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from heron_control.packing.describe import undrained_text
from heron_control.packing.repack import PackingDiff, diff_plans, repack
from heron_control.packing.runtime_settings import RuntimeSetting, changed_settings, restarted_components, with_settings
from heron_runtime.failures import InvalidTopology, UsageError, did_you_mean
from heron_runtime.model.checkpoints import keeps_state
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.settings import Keys, setting
from heron_runtime.model.topology import TopologyDefinition
from heronry.api.validate import validate_definition

DRAINED = (
    "spouts are paused until tuples in flight are processed, at most {:g} s (topology.update.drain.secs); after that "
    "each tuple in flight to a task that moves, ends or restarts "
)
AT_ONCE = "each tuple in flight to a task that moves, ends or restarts "
REPLAYED = "fails with reason `moved`, and its spout emits it again"
LOST = "is lost (topology.reliability.mode is ATMOST_ONCE)"
FORGOTTEN = "such tasks lose state kept in attributes; a spout that moves continues at its own recorded position"
QUIET = "all tasks stop at a checkpoint and continue from it under the new plan; keyed state moves with its keys"


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """Requested parallelism by component, number of containers, settings, and container to move."""

    parallelism: Mapping[str, int] = field(default_factory=dict)
    containers: int | None = None
    settings: tuple[RuntimeSetting, ...] = ()
    move: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedUpdate:
    """Change from one definition and plan to the next."""

    before: tuple[TopologyDefinition, PackingPlan]
    after: tuple[TopologyDefinition, PackingPlan]
    changes: PackingDiff
    undrained: str = ""  # after the update: why tuples in flight were not drained

    @property
    def keeps_state(self) -> bool:
        """True if the update happens at a checkpoint."""
        return keeps_state(self.after[0].config)

    @property
    def notes(self) -> tuple[str, ...]:
        """Consequences for tuples and state of the topology."""
        if self.keeps_state:
            return (QUIET,)
        begun, config = self.restarted, self.after[0].config
        if not (self.changes.go or self.changes.move or begun):
            return ()
        mode, secs = setting(config, Keys.TOPOLOGY_RELIABILITY_MODE), setting(config, Keys.TOPOLOGY_UPDATE_DRAIN_SECS)
        fate = REPLAYED if mode == "ATLEAST_ONCE" else LOST
        restarts = f"the processes of {', '.join(begun)} restart with their new settings"
        return (
            (DRAINED.format(secs) if secs else AT_ONCE) + fate,
            FORGOTTEN,
            *((restarts,) if begun else ()),
            *((undrained_text(self.undrained),) if self.undrained else ()),
        )

    @property
    def restarted(self) -> tuple[str, ...]:
        """Components whose processes restart with other settings; none if all tasks restore anyway."""
        return () if self.keeps_state else tuple(restarted_components(self.before[0], self.after[0]))

    def document(self) -> dict[str, Any]:
        """Return the update for JSON."""
        old, new = (
            {c.name: c.parallelism for c in definition.components} for definition, _ in (self.before, self.after)
        )
        names = {task.task: task.component for _, plan in (self.before, self.after) for task in plan.instances()}

        def tasks(numbers: tuple[int, ...]) -> list[dict[str, Any]]:
            return [{"task": task, "component": names[task]} for task in numbers]

        return {
            "topology": self.after[0].name,
            "parallelism": {name: [old[name], new[name]] for name in new if old[name] != new[name]},
            "containers": [len(self.before[1].containers), len(self.after[1].containers)],
            "new_tasks": tasks(self.changes.come),
            "removed_tasks": tasks(self.changes.go),
            "moved_tasks": [
                {"task": task, "component": names[task], "from": a, "to": b} for task, a, b in self.changes.move
            ],
            "settings": changed_settings(self.before[0], self.after[0]),
            "new_containers": list(self.changes.new_containers),
            "removed_containers": list(self.changes.old_containers),
            "undrained": self.undrained,
            "notes": list(self.notes),
        }


def read_parallelism(texts: Iterable[str]) -> dict[str, int]:
    """Parse ``COMPONENT:TASKS`` texts.

    Raises:
        UsageError: A text is invalid.
    """
    parallelism: dict[str, int] = {}
    for text in texts:
        name, colon, tasks = text.rpartition(":")
        if not (colon and name and tasks.isascii() and tasks.isdecimal() and len(tasks) <= 9):
            raise UsageError(f"{text[:128]!r} is not COMPONENT:TASKS, as in count:4")
        if name in parallelism:
            raise UsageError(f"{name[:128]!r} occurs twice")
        parallelism[name] = int(tasks)
    return parallelism


def plan_update(definition: TopologyDefinition, packing: PackingPlan, request: UpdateRequest) -> PlannedUpdate:
    """Return the plan for ``request``.

    Raises:
        UsageError: The request is invalid or changes nothing.
        InvalidTopology: The updated topology is invalid.
        PackingError: The limits cannot be met.
    """
    specs = {spec.name: spec for spec in definition.components}
    if request == UpdateRequest():
        raise UsageError(
            "nothing to update",
            "Say --component-parallelism COMPONENT:TASKS, --container-number N or --runtime-config KEY:VALUE.",
        )
    for name, tasks in request.parallelism.items():
        if name not in specs:
            hint = did_you_mean(name, specs)
            raise UsageError(
                f"{definition.name} has no component {name!r}{hint}", f"It has {', '.join(sorted(specs))}."
            )
        if tasks < 1:
            raise UsageError(f"{name}:{tasks}: a component has at least one task")
    changed = tuple(
        replace(s, parallelism=request.parallelism.get(s.name, s.parallelism)) for s in definition.components
    )
    wanted = with_settings(replace(definition, components=changed), request.settings)
    problems = validate_definition(wanted)
    if problems:
        raise InvalidTopology(f"{definition.name} cannot be updated: {problems[0]}", details=problems[1:])
    next_task = max((packing.next_task, *(task.task + 1 for task in packing.instances())))
    after = packing
    if request.parallelism or request.containers is not None or request.move is not None:
        after = repack(wanted, packing, next_task, request.containers, request.move)
    after = replace(after, next_task=max((next_task, *(task.task + 1 for task in after.instances()))))
    if wanted == definition and after.containers == packing.containers:
        raise UsageError(f"{definition.name}: the update changes nothing")
    return PlannedUpdate((definition, packing), (wanted, after), diff_plans(packing, after))
