"""A program as a topology: one component for each stage, streams between them, and where to find the program again.

Streams: ``blocks`` (source to chain: a piece of a file or of a sequence), ``hop-STEP-OUTPUT`` (chain to chain: a block
of records), ``rows-REDUCER`` (to a reducer: one row for each key of a block, grouped by key) and ``marks`` (to
everybody behind: how far event time has come), ``pulses`` (to reducers whose results leave their process, see
pulses.py). Data that is late for a window and that somebody reads is
``hop-REDUCER-1`` or stays in the reducer's own stage.
"""

from __future__ import annotations

import sys
from typing import Any

from heronry.api.builder import TopologyBuilder
from heronry.api.errors import TopologyError
from heronry.api.grouping import Grouping
from heronry.api.stream import Stream
from heronry.model.topology import TopologyDefinition
from heronry.streamlet.endpoints import FileSource, is_url
from heronry.streamlet.online.locate import (
    ARGUMENTS,
    FINGERPRINT,
    PATHS,
    PROGRAM,
    STAGE,
    STEPS,
    fingerprint,
    paths_of,
    place_of,
)
from heronry.streamlet.online.pulses import Pulse
from heronry.streamlet.online.stages import Stage, StageKind, Stages, cut, view_of
from heronry.streamlet.program import KIND_OF, Program, ReduceStep, Ref, SourceStep

BLOCKS = "blocks"
MARKS = "marks"
PULSES = "pulses"
BLOCK_FIELDS = ("file", "first", "count", "header", "data", "tries")  # tries: how often the block has failed
HOP_FIELDS = ("origin", "records", "times", "ids", "tries")
PULSE_FIELDS = Pulse._fields
MARK_FIELDS = ("kind", "origin", "time", "target")
MAX_PENDING = 1024  # blocks, each of up to 128 kB; what is processed and waits to be saved costs next to nothing
TICK_MS = 250
DEFAULTS = {
    "topology.reliability.mode": "ATLEAST_ONCE",
    "topology.max.spout.pending": MAX_PENDING,
}


def hop_stream(ref: Ref) -> str:
    """The stream that carries an output to chains."""
    return f"hop-{ref.step}-{ref.output}"


def rows_stream(reducer: str) -> str:
    """The stream that carries rows to a reducer."""
    return f"rows-{reducer}"


def row_fields(program: Program, step: ReduceStep) -> tuple[str, ...]:
    """Of the rows to a reducer: a window or bucket has a start."""
    started = step.windowing is not None or view_of(program, step) is not None
    return ("key", "start", "value") if started else ("key", "value")


def compile_program(program: Program, name: str | None = None) -> TopologyDefinition:
    """The definition of the topology. Raises TopologyError, also for a program that no other process could find."""
    chosen = name or program.name
    builder = TopologyBuilder(chosen)
    builder.set_config({**DEFAULTS, **dict(program.config)})
    config: dict[str, Any] = {PROGRAM: place_of(program), ARGUMENTS: sys.argv[1:], FINGERPRINT: fingerprint(program)}
    config[PATHS] = paths_of(program)
    problems = [
        f"step {step!r}: {path} is a URL, and online tasks read and write files of their machine: name a folder, or "
        "mount it there"
        for step, path in config[PATHS].items()
        if is_url(path)
    ]
    if problems:
        raise TopologyError(problems, chosen, f"program {program.name!r}")
    add_stages(builder, cut(program), config)
    return builder.definition(chosen)


def add_stages(builder: TopologyBuilder, stages: Stages, config: dict[str, Any]) -> None:
    """Spouts and bolts for all stages; ``config`` is laid into each component's. Raises TopologyError."""
    from heronry.streamlet.online.chain_bolt import ChainBolt
    from heronry.streamlet.online.file_spout import FileSpout
    from heronry.streamlet.online.reduce_bolt import ReduceBolt
    from heronry.streamlet.online.sequence_spout import SequenceSpout

    program, pulses = stages.program, stages.pulse_edges()
    for stage in stages.stages:
        own = {**config, STAGE: stage.name, STEPS: _told(program, stage)}
        outputs = _outputs(program, stage)
        if any(before == stage.name for before, _ in pulses):
            outputs.append(Stream(PULSE_FIELDS, PULSES))
        if stage.kind is StageKind.SOURCE:
            step = program.by_name[stage.name]
            assert isinstance(step, SourceStep)
            source = step.source
            if isinstance(source, FileSource) and source.format == "archive" and source.grows:
                raise TopologyError(
                    f"step {stage.name!r}: an archive that grows cannot be read online; leave grows out"
                )
            spout = FileSpout if source.kind == "files" else SequenceSpout
            builder.add_spout(stage.name, spout, stage.parallelism, own, outputs)
            continue
        bolt = ChainBolt if stage.kind is StageKind.CHAIN else ReduceBolt
        own["topology.tick.tuple.freq.ms"] = TICK_MS
        inputs = _inputs(stages, stage)
        inputs |= {(before, PULSES): Grouping.ALL for before, behind in sorted(pulses) if behind == stage.name}
        builder.add_bolt(stage.name, bolt, stage.parallelism, inputs, own, outputs)


def _told(program: Program, stage: Stage) -> list[str]:
    """What runs in the stage, for people."""
    steps = [f"{name} ({KIND_OF[type(program.by_name[name])]})" for name in stage.steps]
    return steps + [f"{name} (map side)" for name in stage.combines]


def _outputs(program: Program, stage: Stage) -> list[Stream]:
    """Data before marks: what waits in several streams is booked in this order."""
    if stage.kind is StageKind.SOURCE:
        return [Stream(BLOCK_FIELDS, BLOCKS), Stream(MARK_FIELDS, MARKS)]
    refs = dict.fromkeys(hop.ref for hop in stage.hops)
    streams = [Stream(HOP_FIELDS, hop_stream(ref)) for ref in refs]
    for reducer in stage.combines:
        step = program.by_name[reducer]
        assert isinstance(step, ReduceStep)
        streams.append(Stream(row_fields(program, step), rows_stream(reducer)))
    return [*streams, Stream(MARK_FIELDS, MARKS)] if streams else []


def _inputs(stages: Stages, stage: Stage) -> dict[tuple[str, str], Grouping]:
    inputs: dict[tuple[str, str], Grouping] = {}
    for name in stage.inputs:
        before = stages.stage(name)
        for hop in before.hops:
            if hop.destination == stage.name:
                stream = BLOCKS if before.kind is StageKind.SOURCE else hop_stream(hop.ref)
                inputs[name, stream] = Grouping.SHUFFLE
        if stage.kind is StageKind.REDUCER and stage.name in before.combines:
            inputs[name, rows_stream(stage.name)] = Grouping.fields("key")
        inputs[name, MARKS] = Grouping.ALL
    return inputs
