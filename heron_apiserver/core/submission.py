"""From the fields of a submit request to what is to be run, or to every fault found in them.

The definition was computed by the client; nothing in it is trusted and nothing it names is imported. It is checked by
the same rules as on the client, and the packing plan is made here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from heron_control.packing import PackingError, pack
from heron_runtime.model.ids import is_safe_name
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.settings import OF_SUBMIT, Keys
from heron_runtime.model.topology import TopologyDefinition, TopologyState
from heronry.api.config import check_config
from heronry.api.validate import validate_definition

NEEDED = ("name", "cluster", "role", "environment")
OPTIONAL = (
    "user", "state", "settings", "replace", "dry_run", "package", "from_checkpoint", "allow_dropped_state",
    "without_state", "timeout_seconds",
)  # fmt: skip
FILES = ("definition", "topology")
FORBIDDEN_SETTINGS = (
    Keys.HERON_SCHEDULER.name, Keys.HERON_STATE_URL.name, Keys.HERON_STATE_CREDENTIAL_FILE.name,
)  # the cluster's own  # fmt: skip
MAX_SETTINGS = 200
MAX_COMPONENTS = 2000
DRAIN_SECONDS, MAX_DRAIN_SECONDS = 120.0, 1800.0  # what is replaced may take so long to get through


class Rejected(ValueError):
    """The request makes no sense. ``problems`` are sentences, ``missing`` the names of fields."""

    def __init__(self, problems: Collection[str], missing: Collection[str] = ()) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)
        self.missing = tuple(missing)


@dataclass(frozen=True, slots=True)
class SubmitFields:
    """The text fields, checked. ``package`` is the digest of one that is at the api server already, or "";
    ``timeout_seconds`` what a topology that is replaced, and keeps state, may take to be drained."""

    name: str
    cluster: str
    role: str
    environ: str
    user: str
    state: TopologyState
    settings: Mapping[str, Any] = field(default_factory=dict)
    replace: bool = False
    dry_run: bool = False
    package: str = ""
    from_checkpoint: str = ""
    allow_dropped_state: bool = False
    without_state: bool = False
    timeout_seconds: float = DRAIN_SECONDS


def read_fields(fields: Mapping[str, str], files: Collection[str], cluster: str) -> SubmitFields:
    """Check the text fields of a request to the api server of ``cluster``. Raises Rejected with every fault."""
    problems = [f"there is no field {name!r}" for name in sorted(set(fields) - {*NEEDED, *OPTIONAL})]
    problems += [f"there is no file {name!r}" for name in sorted(set(files) - set(FILES))]
    missing = [name for name in NEEDED if not fields.get(name)]
    missing += [] if "definition" in files else ["definition"]
    missing += [] if ("topology" in files) != bool(fields.get("package")) else ["topology"]
    if missing:
        problems.append(
            f"missing: {', '.join(missing)}"
            + (" (a file, or the field package with its digest; not both)" if "topology" in missing else "")
        )
    for name in (n for n in NEEDED if fields.get(n)):
        if not is_safe_name(fields[name]):
            problems.append(f"{name} {fields[name][:64]!r} is no name: letters, digits, '_', '-', '.', a letter first")
    if fields.get("cluster", cluster) != cluster:
        problems.append(f"this is the api server of cluster {cluster!r}")
    state = fields.get("state") or TopologyState.RUNNING
    if state not in (TopologyState.RUNNING, TopologyState.PAUSED):
        problems.append("state is running or paused")
    settings, faults = _settings(fields.get("settings", ""))
    replace, dry_run, dropped, without = (
        _flag(fields, name, faults) for name in ("replace", "dry_run", "allow_dropped_state", "without_state")
    )
    seconds = _seconds(fields.get("timeout_seconds", ""), faults)
    user = fields.get("user", "")
    if len(user) > 128 or not user.isprintable():
        faults.append("user is a short printable text")
    if problems + faults:
        raise Rejected(problems + faults, missing)
    return SubmitFields(
        fields["name"], fields["cluster"], fields["role"], fields["environment"], user, TopologyState(state), settings,
        replace, dry_run, fields.get("package", ""), fields.get("from_checkpoint", ""), dropped,
        without, seconds,
    )  # fmt: skip


def check_definition(definition: TopologyDefinition, fields: SubmitFields) -> PackingPlan:
    """The packing plan of a definition that can run. Raises Rejected with every fault, ``PackingError`` included."""
    if len(definition.components) > MAX_COMPONENTS:
        raise Rejected([f"a topology has at most {MAX_COMPONENTS} components, this one {len(definition.components)}"])
    problems = validate_definition(definition)
    if definition.name != fields.name:
        problems.append(f"the definition is of {definition.name!r}, the request of {fields.name!r}")
    if not is_safe_name(definition.id) or not definition.id.startswith(definition.name):
        problems.append(f"the definition's id {definition.id[:64]!r} does not begin with its name")
    plain = {key: value for key, value in definition.config.items() if key not in OF_SUBMIT}
    problems += check_config(plain, component=False, operator=True)[1]
    for spec in definition.components:
        problems += [f"{spec.name}: {fault}" for fault in check_config(spec.config, component=True, operator=False)[1]]
    if not problems:
        try:
            return pack(definition)
        except PackingError as error:
            problems.append(str(error))
    raise Rejected(problems)


def fingerprint(fields: SubmitFields, definition: bytes, package: str) -> str:
    """What tells two requests apart."""
    parts = (
        fields.name, fields.cluster, fields.role, fields.environ, fields.state, str(fields.replace), package,
        fields.from_checkpoint, str(fields.allow_dropped_state), str(fields.without_state),
        json.dumps(fields.settings, sort_keys=True), hashlib.sha256(definition).hexdigest(),
    )  # fmt: skip
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _settings(text: str) -> tuple[dict[str, Any], list[str]]:
    if not text:
        return {}, []
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}, ["settings is no JSON"]
    if not isinstance(found, dict) or len(found) > MAX_SETTINGS:
        return {}, ["settings is a JSON object of heron.* keys"]
    problems = [f"settings holds heron.* keys only, not {key[:64]!r}" for key in found if not key.startswith("heron.")]
    problems += [f"{key} is the cluster's own" for key in FORBIDDEN_SETTINGS if key in found]
    plain, faults = check_config({k: v for k, v in found.items() if k.startswith("heron.")}, component=False)
    return plain, problems + faults


def _flag(fields: Mapping[str, str], name: str, problems: list[str]) -> bool:
    text = fields.get(name, "").lower()
    if text not in ("", "true", "false"):
        problems.append(f"{name} is true or false")
    return text == "true"


def _seconds(text: str, problems: list[str]) -> float:
    try:
        found = float(text or DRAIN_SECONDS)
    except ValueError:
        found = 0.0
    if not 1 <= found <= MAX_DRAIN_SECONDS:
        problems.append(f"timeout_seconds is a number from 1 to {MAX_DRAIN_SECONDS:g}")
    return found
