"""Description of a plan as text, for ``--dry-run`` and the log."""

from __future__ import annotations

from collections.abc import Iterator

from data_pipeline.core.plan import Node, Plan, Reduction, Scan, Table, Unit
from heronry.streamlet.endpoints import FileSource, Sink
from heronry.streamlet.program import ReduceStep
from heronry.streamlet.schema import RecordConverter
from heronry.streamlet.server_sinks import ServerSink
from heronry.streamlet.servers import ServerSource

MAX_DEPTH = 40  # maximum indentation; deeper steps are shown at this depth


def described(plan: Plan) -> str:
    """Return one block of lines for each scan and reduction, in the order in which they run."""
    lines = [f"program {plan.program} on Spark"]
    for scan in plan.scans:
        lines += _scan(scan, plan)
    for reduction in plan.reductions:
        lines += _reduction(reduction)
    lines += [f"output {output.step}: {_sink(output.sink)}" for output in plan.outputs]
    lines += [f"note: {note}" for note in plan.notes]
    return "\n".join(lines)


def _sink(sink: Sink) -> str:
    if isinstance(sink, ServerSink):
        # The text must not change: ``portions.former_identity`` is a digest of descriptions.
        return f"{sink}; tasks stage, what counts is committed behind the result's rename"
    return type(sink).__name__


def _scan(scan: Scan, plan: Plan) -> Iterator[str]:
    source = scan.source
    if isinstance(source, FileSource):
        what = f"{source.format} files at {source.path}"
    elif isinstance(source, ServerSource):
        what = f"{source}, in ranges of {', '.join(source.fields)}"
    else:
        what = f"sequence {source.start} to {source.stop}"
    bounds = [f"{name} {value} ms" for name, value in (("from", scan.from_ms), ("to", scan.to_ms)) if value is not None]
    yield f"scan {scan.step}: {what}" + (f", event time {', '.join(bounds)}" if bounds else "")
    readers: dict[str, list[str]] = {}
    for reduction in plan.reductions:
        for table in reduction.tables:
            if table.scan == scan.step:
                readers.setdefault(_typed(table), []).append(reduction.step.name)
    for typed, names in readers.items():
        yield f"  columns for the SQL of {', '.join(dict.fromkeys(names))}{typed}"
    if scan.unit is not None:
        yield from _unit(scan.unit)


def _typed(table: Table) -> str:
    """Return a description of the step that types a table's columns, and where it runs; empty without schemas."""
    if not table.schemas:
        return ""
    how = "by Catalyst alone" if table.alone else "in one mapInArrow, by the Python rule"
    return f", typed {how}: {', '.join(f'{step.name}: {step.description}' for step in table.schemas)}"


def _reduction(reduction: Reduction) -> Iterator[str]:
    how = "SQL (Catalyst)" if reduction.sql else "shuffle by canonical key, sort, mapInArrow: merge"
    how += f" (no SQL: {reduction.why_python})" if reduction.why_python else ""
    yield f"reduce {reduction.step.name}: {_reducer(reduction.step)}; {how}"
    if reduction.unit.nodes:
        yield from _unit(reduction.unit)


def _unit(unit: Unit) -> Iterator[str]:
    yield "  fused into one mapInArrow:"
    described: set[str] = set()
    waiting: list[tuple[int, Node | str]] = [(0, node) for node in reversed(unit.nodes)]
    while waiting:
        depth, node = waiting.pop()
        begin = "    " + "  " * min(depth, MAX_DEPTH)
        if isinstance(node, str):
            yield f"{begin}{node}"
            continue
        if node.step in described and any(node.outputs):
            yield f"{begin}{node.step}: as above"
            continue
        described.add(node.step)
        more = ", combined on the spot" if node.kind == "reduce" else ""
        typed = [f" {function.schema}" for function in node.functions if isinstance(function, RecordConverter)]
        yield f"{begin}{node.step}: {node.kind}{''.join(typed)}{more}"
        below: list[tuple[int, Node | str]] = []
        for number, readers in enumerate(node.outputs):
            if len(node.outputs) > 1 and readers:
                below.append((depth + 1, f"output {number}:"))
            below += [(depth + 1, reader) for reader in readers]
        waiting += reversed(below)


def _reducer(step: ReduceStep) -> str:
    if step.windowing is None:
        return repr(step.monoid)
    window = step.windowing.window
    if step.process is not None:
        return f"{step.monoid!r}, by key, in order of event time"
    if window.merges:
        return f"{step.monoid!r}, sessions with a gap of {window.length_ms} ms"
    kind = "tumbling" if window.is_tumbling else f"sliding by {window.every_ms} ms"
    return f"{step.monoid!r}, windows of {window.length_ms} ms, {kind}"
