"""Requests to the processes of a topology: targets, answers, and the meaning of errors."""

from __future__ import annotations

from dataclasses import replace

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_control.inspection.process_requests import (
    COUNTS,
    EXCEPTIONS,
    ProcessRequest,
    ProcessUnreachable,
    answers_of,
    status_requests,
    to_container,
    to_master,
)
from heron_control.inspection.topology_status import HERON_SCHEDULER
from heron_runtime.model.containers import TOPOLOGY_MASTER
from heron_runtime.model.plan import PlanVersion
from heron_runtime.model.records import ContainerLocation, MasterLocation, SchedulerLocation, TopologyRecord
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.container import ContainerStatus, SchedulerStatus
from heron_runtime.wire.master import ExceptionsReply, MasterStatus, MetricsReply, MetricValue, StatusRequest
from heron_runtime.wire.metrics import ExceptionReport
from tests.support.stub_processes import definition, execution, packing, process

ANSWERS = {
    HERON_SCHEDULER: SchedulerStatus(process("heron_scheduler", "heron_scheduler", 0), ()),
    TOPOLOGY_MASTER: MasterStatus(1, TopologyState.RUNNING, PlanVersion(1, 1)),
    EXCEPTIONS: ExceptionsReply(
        (ExceptionReport("split", "container_1_split_2", "ValueError", "m", "t", 1, 1.0, 2.0),)
    ),
    COUNTS: MetricsReply(5.0, (MetricValue("split", "container_1_split_2", "__exception-count", "counter", 4.0, 1.0),)),
    **{f"heron_container-{n}": ContainerStatus(n, "h", 1, ()) for n in range(4)},
}


def record(containers: int, master: bool, scheduler: bool) -> TopologyRecord:
    return TopologyRecord(
        definition(), packing(), None, execution("/home"),
        MasterLocation("words-abc", "m", 2, 1) if master else None,
        SchedulerLocation("words-abc", "s", 3) if scheduler else None,
        tuple(ContainerLocation("words-abc", n, f"host{n}", 1, 1, 1) for n in range(containers)),
    )  # fmt: skip


@given(st.integers(0, 4), st.booleans(), st.booleans(), st.booleans(), st.data())
def test_each_known_process_is_asked_once_and_every_result_is_kept(
    containers: int, master: bool, scheduler: bool, exceptions: bool, data: st.DataObject
) -> None:
    known = record(containers, master, scheduler)
    asked = status_requests(known, exceptions=exceptions)
    assert len(asked) == containers + scheduler + master * (2 + exceptions)
    assert {question.address for question in asked.values()} == {
        *(f"host{n}:1" for n in range(containers)), *(["m:2"] * master), *(["s:3"] * scheduler),
    }  # fmt: skip
    silent = data.draw(st.sets(st.sampled_from(sorted(asked)))) if asked else set()
    found = answers_of(known, {name: ProcessUnreachable("late") if name in silent else ANSWERS[name] for name in asked})
    assert found.errors == dict.fromkeys(silent, "late")
    heard = asked.keys() - silent
    assert (found.scheduler is not None) == (HERON_SCHEDULER in heard)
    assert (found.master is not None) == (TOPOLOGY_MASTER in heard)
    assert bool(found.counts) == (COUNTS in heard)
    assert bool(found.exceptions) == (EXCEPTIONS in heard)
    assert {f"heron_container-{n}" for n in found.containers} == {n for n in heard if n.startswith("heron_container")}


def test_answer_of_a_master_with_an_old_epoch_is_ignored() -> None:
    known = record(0, True, False)
    assert known.master is not None
    newer = replace(known, master=replace(known.master, epoch=3))
    found = answers_of(newer, {TOPOLOGY_MASTER: ANSWERS[TOPOLOGY_MASTER]})
    assert found.master is None
    assert "has epoch 1; the store names 3" in found.errors[TOPOLOGY_MASTER]


def test_missing_process_raises_no_answer() -> None:
    with pytest.raises(ProcessUnreachable, match="no topology master") as none:
        to_master(record(0, False, False), "Status", StatusRequest())
    assert none.value.code is None
    with pytest.raises(ProcessUnreachable, match="container 3 of"):
        to_container(record(2, True, True), 3, "Status", StatusRequest())


def test_grpc_errors_are_translated() -> None:
    question = to_master(record(0, True, False), "Status", StatusRequest())

    def meant(code: grpc.StatusCode, details: str = "") -> tuple[str, grpc.StatusCode | None]:
        metadata = grpc.aio.Metadata()
        answer = question.no_answer(grpc.aio.AioRpcError(code, metadata, metadata, details), 2.0)
        return str(answer), answer.code

    status = grpc.StatusCode
    assert meant(status.DEADLINE_EXCEEDED, "x") == (
        "the topology master did not answer within 2 s",
        status.DEADLINE_EXCEEDED,
    )
    assert meant(status.UNAVAILABLE)[0] == "the topology master: no process is listening at its address"
    assert meant(status.NOT_FOUND, "no such file") == ("no such file", status.NOT_FOUND)
    assert meant(status.INTERNAL) == ("INTERNAL", status.INTERNAL)
    assert question.no_answer(TimeoutError(), 4.0).code is status.DEADLINE_EXCEEDED
    assert ProcessRequest(question.location, question.service, "Status", StatusRequest()).no_answer(
        TimeoutError(), 0.5
    ).message == "it did not answer within 0.5 s"  # fmt: skip
