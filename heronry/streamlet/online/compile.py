"""Compiler of a program to a topology.

Each stage becomes one component, with streams between them. The configuration states where to find the program.
"""

from __future__ import annotations

import time
from typing import Any

from heron_runtime.model.settings import Keys
from heron_runtime.model.topology import TopologyDefinition
from heronry.api.builder import TopologyBuilder
from heronry.api.component import AT_LEAST_ONCE
from heronry.api.config import Config
from heronry.api.errors import TopologyError
from heronry.api.grouping import Grouping
from heronry.api.spec import Stream
from heronry.api.state import SHOWN_AGAIN
from heronry.streamlet.aside import policy_of
from heronry.streamlet.endpoints import FileSource, is_url
from heronry.streamlet.online.chain_bolt import ChainBolt
from heronry.streamlet.online.file_spout import FileSpout
from heronry.streamlet.online.locate import (
    FINGERPRINT,
    FIXED,
    PATHS,
    PROGRAM,
    STAGE,
    STEPS,
    fingerprint,
    fixed_of,
    paths_of,
)
from heronry.streamlet.online.reduce_bolt import ReduceBolt
from heronry.streamlet.online.sequence_spout import SequenceSpout
from heronry.streamlet.online.server_spout import ServerSpout
from heronry.streamlet.online.settings import BEGUN
from heronry.streamlet.online.stages import (
    BLOCK_FIELDS,
    BLOCKS,
    EXCHANGE_FIELDS,
    MARK_FIELDS,
    MARKS,
    RECORDS,
    SPLIT,
    SPLITS,
    SPLITS_FIELDS,
    ProgramStage,
    StageGraph,
    StageKind,
    exchange_stream,
    plan_stages,
    reports_splits,
    rows_stream,
    view_of,
)
from heronry.streamlet.program import Program, ReduceStep, SinkStep, SourceStep
from heronry.streamlet.reading import refusals

TICK_MS = 250
SPOUTS = {"files": FileSpout, "sequence": SequenceSpout, "server": ServerSpout}
DEFAULTS = {
    Config.TOPOLOGY_RELIABILITY_MODE: Config.EFFECTIVELY_ONCE,
    Keys.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECS.name: 2.0,  # results become visible with checkpoints
}


def row_fields(program: Program, step: ReduceStep) -> tuple[str, ...]:
    """Return the fields of the rows to a reducer: with windows or buckets the start, with windows their records."""
    if step.windowing is not None:
        return "key", "start", "value", RECORDS
    return ("key", "start", "value") if view_of(program, step) is not None else ("key", "value")


def compile_program(program: Program, name: str | None = None, variable: str = "") -> TopologyDefinition:
    """Return the definition of the topology.

    Args:
        program: The program.
        name: Name of the topology. Default: that of the program.
        variable: Where its tasks find the program, as ``module:variable``.

    Raises:
        TopologyError: The program cannot run online, or is not in a variable.
    """
    if not variable:
        raise TopologyError(
            f"program {program.name!r} is in no variable that its tasks could import it from; write "
            "`words = Builder(…)` at the top level of the file that is submitted"
        )
    chosen = name or program.name
    builder = TopologyBuilder(chosen)
    builder.set_config({**DEFAULTS, **dict(program.config)})
    config: dict[str, Any] = {PROGRAM: variable, FINGERPRINT: fingerprint(program)}
    config |= {PATHS: paths_of(program), BEGUN: int(time.time() * 1000)}
    problems = [
        f"step {step.name!r}: {path} is a URL, and what is written online becomes visible by a rename when "
        "its checkpoint is complete, which object stores do not have: name a folder (perhaps one that is mounted), or "
        "write to a server (to_kafka, to_table, …); on Spark --output-path may be a URL"
        for step in program.sinks()
        if is_url(path := getattr(step.sink, "path", ""))
    ]
    problems += refusals(program)
    policy_of(dict(program.config))
    if problems:
        raise TopologyError(problems, chosen, f"program {program.name!r}")
    fixed = fixed_of(program)
    config |= {FIXED: fixed} if fixed else {}
    add_stages(builder, plan_stages(program), config)
    return builder.definition(chosen)


def add_stages(builder: TopologyBuilder, stages: StageGraph, config: dict[str, Any]) -> None:
    """Add spouts and bolts for all stages. ``config`` is merged into the configuration of each component.

    Raises:
        TopologyError: A source cannot be read online.
    """
    program = stages.program
    for stage in stages.stages:
        own = {**config, STAGE: stage.name, STEPS: _describe_stage(program, stage)}
        outputs = _outputs(stages, stage)
        if stage.kind is StageKind.SOURCE:
            step = program.by_name[stage.name]
            assert isinstance(step, SourceStep)
            source = step.source
            if isinstance(source, FileSource) and source.format == "archive" and source.grows:
                raise TopologyError(f"step {stage.name!r}: an archive that grows cannot be read online; omit grows")
            builder.add_spout(stage.name, SPOUTS[source.kind], stage.parallelism, own, outputs)
            continue
        bolt = ChainBolt if stage.kind is StageKind.CHAIN else ReduceBolt
        own[Config.TOPOLOGY_TICK_TUPLE_FREQ_MS] = TICK_MS
        if again := _shown_again(program, stage):
            own[SHOWN_AGAIN] = again
        builder.add_bolt(stage.name, bolt, stage.parallelism, _inputs(stages, stage), own, outputs)


def _describe_stage(program: Program, stage: ProgramStage) -> list[str]:
    """Return a readable list of what runs in the stage."""
    steps = [f"{name} ({program.by_name[name].description})" for name in stage.steps]
    return steps + [f"{name} (map side)" for name in stage.combines]


def _shown_again(program: Program, stage: ProgramStage) -> list[str]:
    """Return the sinks of the stage that declare that they may show records again after a fault.

    Heronry's own sinks show each record once. A plugged-in sink, which has two phases as well, counts as the same
    unless its ``output_effect`` says otherwise.
    """
    sinks = {name: step.sink for name in stage.steps if isinstance(step := program.by_name[name], SinkStep)}
    return [name for name, sink in sinks.items() if getattr(sink, "output_effect", "") == AT_LEAST_ONCE]


def _reports_splits(stages: StageGraph, stage: ProgramStage) -> bool:
    """Return True if the stage states the progress of event time by split."""
    step = stages.program.by_name[stage.name] if stage.kind is StageKind.SOURCE else None
    if isinstance(step, SourceStep):
        return reports_splits(stages.program, step)
    return stage.kind is StageKind.CHAIN and bool(stages.reported(stage.name))


def _outputs(stages: StageGraph, stage: ProgramStage) -> list[Stream]:
    """Return the output streams, data before marks. Tuples that wait in several streams are recorded in this order."""
    program, reports = stages.program, _reports_splits(stages, stage)
    marks = [Stream(MARK_FIELDS, MARKS), *([Stream(SPLITS_FIELDS, SPLITS)] if reports else [])]
    if stage.kind is StageKind.SOURCE:
        return [Stream(BLOCK_FIELDS, BLOCKS), *marks]
    refs = dict.fromkeys(exchange.ref for exchange in stage.exchanges)
    fields = (*EXCHANGE_FIELDS, SPLIT) if reports else EXCHANGE_FIELDS
    streams = [Stream(fields, exchange_stream(ref)) for ref in refs]
    for reducer in stage.combines:
        step = program.by_name[reducer]
        assert isinstance(step, ReduceStep)
        streams.append(Stream(row_fields(program, step), rows_stream(reducer)))
    return [*streams, *marks] if streams else []


def _inputs(stages: StageGraph, stage: ProgramStage) -> dict[tuple[str, str], Grouping]:
    inputs: dict[tuple[str, str], Grouping] = {}
    for name in stage.inputs:
        before = stages.stage(name)
        for exchange in before.exchanges:
            if exchange.reader == stage.name:
                stream = BLOCKS if before.kind is StageKind.SOURCE else exchange_stream(exchange.ref)
                inputs[name, stream] = Grouping.SHUFFLE
        if stage.kind is StageKind.REDUCER and stage.name in before.combines:
            inputs[name, rows_stream(stage.name)] = Grouping.fields("key")
        inputs[name, MARKS] = Grouping.ALL
        if _reports_splits(stages, before):
            inputs[name, SPLITS] = Grouping.ALL
    return inputs
