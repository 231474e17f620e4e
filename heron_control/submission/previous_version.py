"""The version that a replacement has ended, for a start again if the new one does not run."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from heron_control.packing.runtime_settings import changed_settings
from heron_control.submission.submission import StartFrom, Submission
from heron_runtime.launch import Launch
from heron_runtime.model.checkpoints import keeps_state
from heron_runtime.model.records import TopologyRecord
from heron_runtime.model.topology import TopologyDefinition

UPGRADE_PREFIX = "upgrade-"


def submission_of(record: TopologyRecord, launch: Launch, package: Path) -> Submission:
    """Return a submission of a running topology with a new id, and its parallelism and settings of now."""
    definition = replace(record.definition, id=f"{record.definition.name}-{secrets.token_hex(8)}")
    stored = record.execution
    return Submission(
        definition, record.packing, package, stored.role, stored.environ, stored.submission_user, stored.state,
        launch.settings, launch.package_digest,
    )  # fmt: skip


def with_upgrade_checkpoint(
    before: Submission, place: str, checkpoints: Iterable[Mapping[str, Any]]
) -> Submission | None:
    """Return the submission that starts from the newest upgrade checkpoint.

    A topology without state is returned unchanged. None if the topology keeps state and no such checkpoint exists.
    ``place`` is CLUSTER/ROLE/ENVIRON.
    """
    if not keeps_state(before.definition.config):
        return before
    names = [str(row.get("name") or "") for row in checkpoints]
    suffixes = [name.removeprefix(UPGRADE_PREFIX) for name in names]
    numbers = [int(suffix) for suffix in suffixes if suffix.isdecimal()]
    if not numbers:
        return None
    reference = f"{place}/{before.definition.name}@{UPGRADE_PREFIX}{max(numbers)}"
    return replace(before, start=StartFrom(reference))


def describe_changes(before: TopologyDefinition, after: TopologyDefinition) -> list[str]:
    """Return the parallelism and settings that a replacement changes, set by the program or by ``heron update``."""
    parallelism = {spec.name: spec.parallelism for spec in after.components}
    texts = [
        f"{spec.name}: {spec.parallelism} tasks before, {parallelism[spec.name]} now"
        for spec in before.components
        if spec.name in parallelism and parallelism[spec.name] != spec.parallelism
    ]
    common = replace(before, components=tuple(spec for spec in before.components if spec.name in parallelism))
    for change in changed_settings(common, after):
        where = f"{change['component']}: " if change["component"] else ""
        texts.append(f"{where}{change['key']}: {change['from']!r:.60} before, {change['to']!r:.60} now")
    for key in sorted(set(before.config) - set(after.config)):
        texts.append(f"{key}: {before.config[key]!r:.60} before, not set now")
    return texts
