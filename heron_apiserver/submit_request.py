"""Validation of submit requests: from form fields to a checked request, with every fault reported.

The client computed the definition. The server trusts nothing in it and imports nothing it names. It is checked by
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
from heronry.api.config import examine
from heronry.api.validate import problems_of

REQUIRED_FIELDS = ("name", "cluster", "role", "environment")
OPTIONAL_FIELDS = (
    "user", "state", "settings", "replace", "dry_run", "package", "from_checkpoint", "allow_dropped_state",
    "without_state", "timeout_seconds",
)  # fmt: skip
FILES = ("definition", "topology")
FORBIDDEN_SETTINGS = (
    Keys.HERON_SCHEDULER.name, Keys.HERON_STATE_URL.name, Keys.HERON_STATE_CREDENTIAL_FILE.name,
)  # the cluster's own  # fmt: skip
MAX_SETTINGS = 200
MAX_COMPONENTS = 2000
DRAIN_SECONDS, MAX_DRAIN_SECONDS = 120.0, 1800.0  # drain of a replaced topology


class SubmitRejected(ValueError):
    """The request is invalid. ``problems`` are sentences, ``missing`` the names of fields."""

    def __init__(self, problems: Collection[str], missing: Collection[str] = ()) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)
        self.missing = tuple(missing)


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """Checked text fields of a submit request.

    Attributes:
        package: digest of a package that is stored already, or empty.
        timeout_seconds: longest drain of a topology that is replaced and keeps state.
    """

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


def parse_fields(fields: Mapping[str, str], files: Collection[str], cluster: str) -> SubmitRequest:
    """Parse the text fields of a request to the API server of ``cluster``. Raises SubmitRejected."""
    problems = [f"unknown field {name!r}" for name in sorted(set(fields) - {*REQUIRED_FIELDS, *OPTIONAL_FIELDS})]
    problems += [f"unknown file {name!r}" for name in sorted(set(files) - set(FILES))]
    missing = [name for name in REQUIRED_FIELDS if not fields.get(name)]
    missing += [] if "definition" in files else ["definition"]
    missing += [] if ("topology" in files) != bool(fields.get("package")) else ["topology"]
    if missing:
        problems.append(
            f"missing: {', '.join(missing)}"
            + (" (send the file, or its digest in the field package, but not both)" if "topology" in missing else "")
        )
    for name in (n for n in REQUIRED_FIELDS if fields.get(n)):
        if not is_safe_name(fields[name]):
            problems.append(
                f"invalid {name} {fields[name][:64]!r}: use letters, digits, '_', '-', '.', and a letter first"
            )
    if fields.get("cluster", cluster) != cluster:
        problems.append(f"this API server serves cluster {cluster!r}")
    state = fields.get("state") or TopologyState.RUNNING
    if state not in (TopologyState.RUNNING, TopologyState.PAUSED):
        problems.append("state must be running or paused")
    settings, faults = _settings(fields.get("settings", ""))
    replace, dry_run, dropped, without = (
        _flag(fields, name, faults) for name in ("replace", "dry_run", "allow_dropped_state", "without_state")
    )
    seconds = _seconds(fields.get("timeout_seconds", ""), faults)
    user = fields.get("user", "")
    if len(user) > 128 or not user.isprintable():
        faults.append("user must be printable and at most 128 characters long")
    if problems + faults:
        raise SubmitRejected(problems + faults, missing)
    return SubmitRequest(
        fields["name"], fields["cluster"], fields["role"], fields["environment"], user, TopologyState(state), settings,
        replace, dry_run, fields.get("package", ""), fields.get("from_checkpoint", ""), dropped,
        without, seconds,
    )  # fmt: skip


def check_definition(definition: TopologyDefinition, fields: SubmitRequest) -> PackingPlan:
    """Check a definition and return its packing plan. Raises SubmitRejected."""
    if len(definition.components) > MAX_COMPONENTS:
        raise SubmitRejected(
            [f"too many components: {len(definition.components)}, at most {MAX_COMPONENTS} are allowed"]
        )
    problems = problems_of(definition)
    if definition.name != fields.name:
        problems.append(f"the definition is named {definition.name!r}, the request {fields.name!r}")
    if not is_safe_name(definition.id) or not definition.id.startswith(definition.name):
        problems.append(f"the definition's id {definition.id[:64]!r} does not begin with its name")
    plain = {key: value for key, value in definition.config.items() if key not in OF_SUBMIT}
    problems += examine(plain, component=False, operator=True)[1]
    for spec in definition.components:
        problems += [f"{spec.name}: {fault}" for fault in examine(spec.config, component=True, operator=False)[1]]
    if not problems:
        try:
            return pack(definition)
        except PackingError as error:
            problems.append(str(error))
    raise SubmitRejected(problems)


def fingerprint(fields: SubmitRequest, definition: bytes, package: str) -> str:
    """Return a digest that differs between different requests."""
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
        settings = json.loads(text)
    except (ValueError, RecursionError):
        return {}, ["settings is not JSON"]
    if not isinstance(settings, dict) or len(settings) > MAX_SETTINGS:
        return {}, ["settings must be a JSON object of heron.* keys"]
    problems = [
        f"settings may contain heron.* keys only, not {key[:64]!r}" for key in settings if not key.startswith("heron.")
    ]
    problems += [f"{key} can only be set for the cluster" for key in FORBIDDEN_SETTINGS if key in settings]
    plain, faults = examine({k: v for k, v in settings.items() if k.startswith("heron.")}, component=False)
    return plain, problems + faults


def _flag(fields: Mapping[str, str], name: str, problems: list[str]) -> bool:
    text = fields.get(name, "").lower()
    if text not in ("", "true", "false"):
        problems.append(f"{name} must be true or false")
    return text == "true"


def _seconds(text: str, problems: list[str]) -> float:
    try:
        seconds = float(text or DRAIN_SECONDS)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= MAX_DRAIN_SECONDS:
        problems.append(f"timeout_seconds must be a number from 1 to {MAX_DRAIN_SECONDS:g}")
    return seconds
