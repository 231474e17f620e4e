"""Lookup of the submitted program in an instance, by the variable that ``heron submit`` took it from.

Functions are not pickled. An instance imports the user's module, as for any spout or bolt, and takes the program from
its variable. Lambdas and closures therefore need no special treatment. The module finds the arguments of
``heron submit … -- ARGS`` in ``sys.argv``, as in every task.

The paths of sources and sinks may have been relative to the folder or the file that was submitted, so they are
transmitted in the configuration. So are settings that were resolved at submission for sources that leave them open,
such as the version of a table. A fingerprint of the steps ensures that the program found in the instance is the one
that was submitted.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, cast

from heronry.api.errors import TopologyError
from heronry.connect.settings import ConnectError
from heronry.streamlet.program import LookupStep, Program, ReduceStep, SinkStep, SourceStep, Step
from heronry.streamlet.servers import ServerSource

PROGRAM = "user.streamlet.program"  # module:variable
FINGERPRINT = "user.streamlet.fingerprint"
STAGE = "user.streamlet.stage"
STEPS = "user.streamlet.steps"  # readable list of what runs in the component (`heron submit --dry-run`)
PATHS = "user.streamlet.paths"  # paths of sources and sinks, by step
FIXED = "user.streamlet.fixed"  # settings of sources that were resolved at submission, by step

_ABSENT = ("partitions", "options")  # settings newer than the first fingerprints; omitted if unset


def fingerprint(program: Program) -> str:
    """Return a hash of the steps: names, wiring, parallelism, sources and sinks. Functions count by their names."""
    lines = [program.describe()]
    for step in program.steps:
        lines.append(f"{step.name} {step.parallelism} {step.kind}")
        if isinstance(step, ReduceStep):
            windowing = step.windowing
            lines.append(f"{step.monoid!r} {windowing.window if windowing else None} {step.updates}")
        for side in ("source", "table", "sink"):
            spec = getattr(step, side, None)
            if spec is not None:
                names = [n for n in spec.__slots__ if n != "path" and not callable(getattr(spec, n))]
                fields = {n: getattr(spec, n) for n in names if n not in _ABSENT or getattr(spec, n)}
                lines.append(f"{side} {sorted(fields.items())}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def paths_of(program: Program) -> dict[str, str]:
    """Return the paths of the program's sources and sinks, by step."""
    specs = [*program.reads(), *((s.name, s.sink) for s in program.sinks())]
    return {name: spec.path for name, spec in specs if hasattr(spec, "path")}


def fixed_of(program: Program) -> dict[str, dict[str, Any]]:
    """Resolve the settings that sources leave open. Return them by step.

    Raises:
        TopologyError: A source could not resolve its settings.
    """
    values, problems = {}, []
    for step in program.sources():
        if isinstance(step.source, ServerSource):
            try:
                values[step.name] = step.source.fixed()
            except ConnectError as error:
                problems.append(f"step {step.name!r}: {error}")
    if problems:
        raise TopologyError(problems)
    return {name: settings for name, settings in values.items() if settings}


def apply_submission(program: Program, paths: Mapping[str, str], fixed: Mapping[str, dict[str, Any]]) -> Program:
    """Return the program with the paths and source settings that it was submitted with."""
    steps: list[Step] = []
    for step in program.steps:
        if step.name in fixed and isinstance(step, SourceStep) and isinstance(step.source, ServerSource):
            step = replace(step, source=step.source.having(fixed[step.name]))
        if step.name in paths:
            path: Any = {"path": paths[step.name]}
            if isinstance(step, SourceStep):
                step = replace(step, source=replace(step.source, **path))
            elif isinstance(step, LookupStep):
                step = replace(step, table=replace(step.table, **path))
            elif isinstance(step, SinkStep):
                step = replace(step, sink=replace(cast(Any, step.sink), **path))
        steps.append(step)
    return replace(program, steps=tuple(steps))


def load_submitted_program(config: Mapping[str, Any]) -> Program:
    """Import the program that a component's configuration names.

    Raises:
        ImportError: The module cannot be imported.
        TopologyError: The program is not the one that was submitted.
    """
    module_name, _, variable = str(config[PROGRAM]).partition(":")
    value: Any = reduce(getattr, variable.split("."), importlib.import_module(module_name))
    program: Program = value if isinstance(value, Program) else value.build()
    if fingerprint(program) != config[FINGERPRINT]:
        raise TopologyError(
            f"{config[PROGRAM]} is not the program that was submitted: its module builds another one here than there. "
            "Let it depend on its arguments alone (`-- ARGS`), not on the environment, the folder or the time"
        )
    return apply_submission(program, config.get(PATHS, {}), config.get(FIXED, {}))
