"""JSON form of a status: round trip, and rejection of other documents."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from heron_control.inspection.status_document import from_document, to_document
from heron_control.inspection.topology_status import Answers, TopologyStatus, as_json, topology_status
from heron_runtime.model.dataflow import Cause, CauseKind
from heron_runtime.model.plan import PlanVersion
from heron_runtime.model.records import TopologyRecord
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.container import ContainerStatus, ProcessState
from heron_runtime.wire.master import MasterStatus, StreamManagerStatus
from heron_runtime.wire.metrics import ExceptionReport
from tests.support.stub_processes import all_processes, definition, execution, packing, process


def status() -> TopologyStatus:
    record = TopologyRecord(definition(), packing(), None, execution("/home"), None, None, ())
    sick = process("heron_instance", "container_2_count_3", 2, ProcessState.DEAD, component="count", task=3,
                   restarts=4, last_error="exit code 1", last_lines=("a", "b"))  # fmt: skip
    containers = {2: ContainerStatus(2, "h", 1, (*all_processes(2)[:-1], sick))}
    causes = (Cause(CauseKind.TASK, "count", 2, 2), Cause(CauseKind.LINK, "", 0, 1, 2))
    master = MasterStatus(1, TopologyState.RUNNING, PlanVersion(1, 1), (StreamManagerStatus(2, True, causes=causes),))
    report = ExceptionReport("count", "container_2_count_3", "ValueError", "bad", "Traceback…", 7, 1.0, 2.0)
    return topology_status(record, Answers(None, containers, master, (report,)), 5000.0)


@pytest.mark.parametrize("code_user", [None, "", "heronry-code"])
def test_status_survives_json(code_user: str | None) -> None:
    made = replace(status(), code_user=code_user)
    back = from_document(json.loads(json.dumps(to_document(made))))
    assert as_json(back) == as_json(made)
    assert (back.causes, back.exceptions, back.processes) == (made.causes, made.exceptions, made.processes)
    assert back.execution.topology_id == made.execution.topology_id
    assert back.code_user == code_user
    assert back.unwell() == made.unwell()


@pytest.mark.parametrize(
    "change", [{"processes": None}, {"state": 3}, {"processes": [{"kind": "x"}]}, {"submitted_at": "yesterday"}]
)
def test_other_documents_are_rejected(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # whichever field it is
        from_document({**to_document(status()), **change})


def test_cause_of_waiting_survives_json() -> None:
    made = replace(status(), state="waiting", waiting="the queue of the cluster is full")
    back = from_document(json.loads(json.dumps(to_document(made))))
    assert back.waiting == made.waiting
    assert back.cause() == made.cause() == "the queue of the cluster is full"
