"""The version that ``heron submit --replace`` replaces: what it loses, and how it comes back if the new one is bad.

The code of the version that runs is kept beside the package of the new one until the new one runs. A new version whose
processes keep dying is killed, and the version before is submitted again. Where it keeps state it goes on from its last
checkpoint, which was kept under the name ``upgrade-NUMBER`` when it was drained.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from heron_cli.address import Address
from heron_control.packing.runtime_settings import changed_settings
from heron_control.schedulers.topology_folder import PACKAGE, load_launch
from heron_control.submission.submission import StartFrom, Submission
from heron_runtime.model.checkpoints import keeps_state
from heron_runtime.model.records import TopologyRecord
from heron_runtime.model.topology import TopologyDefinition

KEPT = "upgrade-"


def keep_version(record: TopologyRecord, folder: Path) -> Submission | None:
    """Return a submission of what runs, its code kept in a new folder; None if the code is gone. Raises OSError."""
    home = Path(record.execution.home)
    launch = load_launch(home)
    if launch is None or not (home / PACKAGE).is_dir():
        return None
    shutil.copytree(home / PACKAGE, folder, symlinks=True, copy_function=_link)
    definition = replace(record.definition, id=f"{record.definition.name}-{secrets.token_hex(8)}")
    stored = record.execution
    return Submission(
        definition, record.packing, folder, stored.role, stored.environ, stored.submission_user, stored.state,
        launch.settings, launch.package_digest,
    )  # fmt: skip


def _link(source: str, target: str) -> None:
    """A second name for a file, which costs no space; a copy where the disk has no such names."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def goes_on(before: Submission, address: Address, checkpoints: Iterable[Mapping[str, Any]]) -> Submission | None:
    """Return the submission with the checkpoint it goes on from; None if it keeps state and that was given up."""
    if not keeps_state(before.definition.config):
        return before
    names = [str(row.get("name") or "") for row in checkpoints]
    numbers = [int(name.removeprefix(KEPT)) for name in names if name.removeprefix(KEPT).isdecimal()]
    if not numbers:
        return None
    return replace(before, start=StartFrom(f"{address}/{before.definition.name}@{KEPT}{max(numbers)}"))


def differences(before: TopologyDefinition, after: TopologyDefinition) -> list[str]:
    """Return what a replacement changes of parallelism and settings, whoever set them: the program or an update."""
    known = {spec.name: spec.parallelism for spec in after.components}
    texts = [
        f"{spec.name}: {spec.parallelism} tasks before, {known[spec.name]} now"
        for spec in before.components
        if spec.name in known and known[spec.name] != spec.parallelism
    ]
    common = replace(before, components=tuple(spec for spec in before.components if spec.name in known))
    for change in changed_settings(common, after):
        where = f"{change['component']}: " if change["component"] else ""
        texts.append(f"{where}{change['key']}: {change['from']!r:.60} before, {change['to']!r:.60} now")
    for key in sorted(set(before.config) - set(after.config)):
        texts.append(f"{key}: {before.config[key]!r:.60} before, not set now")
    return texts
