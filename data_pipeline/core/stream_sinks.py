"""Which sinks in servers a stream writes, when, and which it cannot. Pure.

Theory of operation. What is in a server is not replaced as a result is, so a stream may write there

* what is final as soon as it is read: records that come from its inputs with no reducer between. Each micro-batch
  *appends* its own, once;
* what a later row replaces: the results of a reducer, into a table whose key is the reducer's key, and window. A row of
  theirs never goes away, since what was counted stays counted, so to *replace* each row with each result leaves what a
  batch over all input would.

All else would leave rows that such a batch would not write, and is refused: more rows for each result; sessions, which
grow together; joins and ``process``, which take back what they gave; steps that may let a result pass once and not the
next time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from data_pipeline.core.plan import CannotPlan, Node, Output, Plan, Reduction
from data_pipeline.core.portions import streamed
from heronry.streamlet.server_sinks import ServerSink

INSTEAD = "or leave --mode streaming out, or run the program online: heron submit local"
UNCHANGED = ("tap", "log")  # steps that give each record as they got it


def appended(plan: Plan) -> list[Output]:
    """The sinks that each micro-batch adds its records to. Raises CannotPlan."""
    scans = {scan.step for scan in streamed(plan)}
    return [output for output in _into_servers(plan) if {entry for entry, _ in output.inputs} <= scans]


def without_appended(plan: Plan) -> Plan:
    """The plan of what is left when micro-batches have written theirs."""
    done = {output.step for output in appended(plan)}
    return replace(plan, outputs=tuple(output for output in plan.outputs if output.step not in done))


def check(plan: Plan) -> None:
    """Raises CannotPlan for a sink in a server that a stream can neither append to nor replace rows in. The plan is one
    without SQL."""
    adds = {output.step for output in appended(plan)}
    for output in _into_servers(plan):
        if output.step not in adds:
            why = _why_not(plan, output)
            if why:
                raise CannotPlan(f"step {output.step!r}, {output.sink}, by micro-batches: {why}; {INSTEAD}")


def told(plan: Plan) -> Iterator[str]:
    """A line for each sink in a server."""
    adds = {output.step for output in appended(plan)}
    for output in _into_servers(plan):
        how = (
            "each micro-batch appends its records, once: tasks stage, what counts is committed behind the rename of "
            "the micro-batch's portion in CHECKPOINT"
            if output.step in adds
            else "each result replaces its rows, by key: tasks stage, what counts is committed behind the rename of "
            "OUTPUT"
        )
        yield f"by micro-batches {output.step}: {how}"


def _into_servers(plan: Plan) -> list[Output]:
    return [output for output in plan.outputs if isinstance(output.sink, ServerSink)]


def _why_not(plan: Plan, output: Output) -> str:
    """What keeps its rows from being replaced, and the cure; empty if nothing does."""
    reductions = {reduction.step.name: reduction for reduction in plan.reductions}
    entries = [entry for entry, _ in output.inputs]
    found = [reductions[entry] for entry in entries if entry in reductions]
    if not found:
        return (
            f"records of {', '.join(entries)} are read anew for each result, and would be added each time; write them "
            "by a program of their own, as a batch"
        )
    (reduction, *_), name = found, found[0].step.name
    assert isinstance(output.sink, ServerSink)
    if len(entries) > 1:
        return f"it takes records of {', '.join(entries)} together; give each of them a sink, and a table, of its own"
    if not output.sink.replaces_by:
        return (
            f"results of {name!r} change with each micro-batch, and would be added again each time; write them with "
            "to_table(…, key=…), whose rows are replaced"
        )
    return _why_rows_stay(reduction, output) or _why_not_its_key(reduction, output.sink)


def _why_rows_stay(reduction: Reduction, output: Output) -> str:
    step = reduction.step
    if step.process is not None:
        return f"what {step.name!r} emits of a key is no row that is replaced; write it to files (to_files)"
    if step.merges:
        return (
            f"sessions of {step.name!r} grow together, and the rows of the parts would stay; write them to files "
            "(to_files), or count by windows of a fixed length"
        )
    if not any(_is_reached(node, output.step) for node in reduction.unit.nodes):
        return (
            f"between {step.name!r} and it are steps, which may give a row now and not the next time, and that row "
            "would stay; let it read the reducer itself (columns key, value, with windows start and end), and have "
            "the database do the rest, in a view"
        )
    return ""


def _is_reached(node: Node, sink: str) -> bool:
    """True if the node is the sink, or hands all that it gets on to it."""
    seen, waiting = set[str](), [node]
    while waiting:
        node = waiting.pop()
        if node.step == sink:
            return True
        if node.kind in UNCHANGED and node.step not in seen:
            seen.add(node.step)
            waiting += chain.from_iterable(node.outputs)
    return False


def _why_not_its_key(reduction: Reduction, sink: ServerSink) -> str:
    """The key must tell all results apart, and nothing else."""
    windows = ({"key", "start"}, {"key", "end"}, {"key", "start", "end"})
    right = windows if reduction.step.windowing is not None else ({"key"},)
    if set(sink.replaces_by) in right:
        return ""
    cure = "['key', 'start']" if reduction.step.windowing is not None else "'key'"
    return (
        f"its key is {', '.join(sink.replaces_by)}, and {reduction.step.name!r} gives a result for each "
        f"{'key and window' if reduction.step.windowing is not None else 'key'}; give the table that key: key={cure}"
    )
