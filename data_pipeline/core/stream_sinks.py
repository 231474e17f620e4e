"""Rules for the sinks that a stream can write, and when it writes them. Pure.

Files of a program without reducers are final as soon as they are written. Each micro-batch *appends* its own, and
OUTPUT grows. Files of other programs are written again with each result, which replaces OUTPUT as a whole.

The contents of a server are not replaced as a result is. A stream can therefore write only

* records that are final as soon as they are read: they come from its inputs without a reducer in between. Each
  micro-batch *appends* its own records once;
* rows that a later row replaces: the results of a reducer, in a table whose key is the reducer's key and window. Such
  a row never disappears, since counted records stay counted. To *replace* each row with each result thus leaves the
  rows that a batch over all input would write.

Everything else would leave rows that such a batch would not write, and is rejected: several rows for each result;
sessions, which merge; joins and ``process``, which retract results; and steps that may pass a result on one time and
drop it the next time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from data_pipeline.core.plan import CannotPlan, Node, Output, Plan, Reduction
from data_pipeline.core.portions import streamed
from heronry.streamlet.server_sinks import ServerSink

INSTEAD = "or leave --mode streaming out, or run the program online: heron submit local"
UNCHANGED = ("tap", "log")  # steps that pass on each record unchanged


def appended(plan: Plan) -> list[Output]:
    """Return the sinks to which each micro-batch appends its records. Raises CannotPlan."""
    scans = {scan.step for scan in streamed(plan)}
    final = [output for output in plan.outputs if {entry for entry, _ in output.inputs} <= scans]
    appends_files = not plan.reductions and len(final) == len(plan.outputs)
    return [output for output in final if isinstance(output.sink, ServerSink) or appends_files]


def appended_files(plan: Plan) -> list[Output]:
    """Return the sinks whose files each micro-batch appends to OUTPUT. Raises CannotPlan."""
    return [output for output in appended(plan) if not isinstance(output.sink, ServerSink)]


def without_appended(plan: Plan) -> Plan:
    """Return the plan without the sinks that micro-batches append to."""
    done = {output.step for output in appended(plan)}
    return replace(plan, outputs=tuple(output for output in plan.outputs if output.step not in done))


def check(plan: Plan) -> None:
    """Check that a stream can write each server sink of the plan, which must be a plan without SQL.

    Raises:
        CannotPlan: A stream can neither append to a sink in a server nor replace rows in it.
    """
    adds = {output.step for output in appended(plan)}
    for output in _into_servers(plan):
        if output.step not in adds:
            why = _why_not(plan, output)
            if why:
                raise CannotPlan(f"step {output.step!r}, {output.sink}, by micro-batches: {why}; {INSTEAD}")


def describe_sinks(plan: Plan) -> Iterator[str]:
    """Yield a line of text for each sink in a server, and for each sink whose files are appended."""
    for output in appended_files(plan):
        yield (
            f"by micro-batches {output.step}: each micro-batch appends its files to OUTPUT, once, after the rename of "
            "the micro-batch's portion in CHECKPOINT"
        )
    adds = {output.step for output in appended(plan)}
    for output in _into_servers(plan):
        how = (
            "each micro-batch appends its records, once: tasks stage them, and committed ones follow the rename of "
            "the micro-batch's portion in CHECKPOINT"
            if output.step in adds
            else "each result replaces its rows, by key: tasks stage them, and committed ones follow the rename of "
            "OUTPUT"
        )
        yield f"by micro-batches {output.step}: {how}"


def _into_servers(plan: Plan) -> list[Output]:
    return [output for output in plan.outputs if isinstance(output.sink, ServerSink)]


def _why_not(plan: Plan, output: Output) -> str:
    """Return the reason why the output's rows cannot be replaced, with the remedy; empty if they can."""
    reductions = {reduction.step.name: reduction for reduction in plan.reductions}
    entries = [entry for entry, _ in output.inputs]
    own_reductions = [reductions[entry] for entry in entries if entry in reductions]
    if not own_reductions:
        return (
            f"records of {', '.join(entries)} are read again for each result, and would be added each time; write "
            "them with a separate batch program"
        )
    (reduction, *_), name = own_reductions, own_reductions[0].step.name
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
        return f"{step.name!r} emits rows that do not replace a key's earlier row; write them to files (to_files)"
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
    """Return True if the node is the sink, or passes all its records on to the sink."""
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
    """Return the reason why the sink's key does not identify exactly the reducer's results; empty if it does."""
    windows = ({"key", "start"}, {"key", "end"}, {"key", "start", "end"})
    right = windows if reduction.step.windowing is not None else ({"key"},)
    if set(sink.replaces_by) in right:
        return ""
    cure = "['key', 'start']" if reduction.step.windowing is not None else "'key'"
    return (
        f"its key is {', '.join(sink.replaces_by)}, and {reduction.step.name!r} gives a result for each "
        f"{'key and window' if reduction.step.windowing is not None else 'key'}; give the table that key: key={cure}"
    )
