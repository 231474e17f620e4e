"""Content of ``heron status`` as a pure function of record and answers, and its JSON form."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_control.inspection.status_document import from_document, to_document
from heron_control.inspection.topology_status import (
    KEEPS_DYING,
    START_GRACE_SECS,
    ProcessReplies,
    TopologyStatus,
    as_json,
    expected_processes,
    topology_state,
    topology_status,
)
from heron_runtime.model.dataflow import Cause, CauseKind
from heron_runtime.model.plan import PhysicalPlan, PlanVersion
from heron_runtime.model.records import ContainerLocation, SchedulerLocation, TopologyRecord
from heron_runtime.model.topology import TopologyState
from heron_runtime.wire.container import AT_END, ContainerStatus, ProcessState, SchedulerStatus
from heron_runtime.wire.master import Bottleneck, CheckpointStatus, FlowStatus, MasterStatus, StreamManagerStatus
from heron_runtime.wire.metrics import ExceptionReport
from tests.support.stub_processes import all_processes, definition, execution, packing, process

RUNNING, PAUSED, KILLED = TopologyState.RUNNING, TopologyState.PAUSED, TopologyState.KILLED
S = ProcessState
NOW = 1000.0 + 3600


def located(*numbers: int) -> tuple[ContainerLocation, ...]:
    return tuple(ContainerLocation("words-abc", n, f"host{n}", 1, 1, 1) for n in numbers)


def record(planned: bool = True, containers: tuple[int, ...] = (0, 1, 2), replicas: int = 1) -> TopologyRecord:
    made = replace(definition(), config={"topology.master.replicas": replicas})
    plan = PhysicalPlan(PlanVersion(1, 1), 1, made, packing()) if planned else None
    scheduler = SchedulerLocation("words-abc", "h", 1, 7)
    return TopologyRecord(made, packing(), plan, execution("/home"), None, scheduler, located(*containers))


def answers(*numbers: int, scheduler: bool = True) -> ProcessReplies:
    told = SchedulerStatus(
        process("heron_scheduler", "heron_scheduler", 0),
        tuple(process("heron_container", f"heron_container-{n}", n) for n in (0, 1, 2)),
    )
    containers = {
        n: ContainerStatus(n, "h", 1, (process("heron_container", f"heron_container-{n}", n), *all_processes(n)))
        for n in numbers
    }
    return ProcessReplies(told if scheduler else None, containers)


def test_topology_runs_if_all_processes_answer() -> None:
    status = topology_status(record(), answers(0, 1, 2), NOW)
    assert status.state == "running"
    assert [p.name for p in status.processes] == [
        "heron_scheduler", "heron_container-0", "topology_master-0", "metrics_manager-0",
        "heron_container-1", "stream_manager-1", "metrics_manager-1", "container_1_word_1",
        "heron_container-2", "stream_manager-2", "metrics_manager-2", "container_2_count_2", "container_2_count_3",
    ]  # fmt: skip
    assert [(c.id, c.host, c.state) for c in status.containers] == [(n, f"host{n}", S.RUNNING) for n in (0, 1, 2)]
    assert status.unwell() == []


def test_standbys_are_expected() -> None:
    names = [(name, container) for _, name, container, *_ in expected_processes(record(replicas=3))]
    for number in (0, 100_001, 100_002):
        ours = [name for name, container in names if container == number]
        assert ours == [f"heron_container-{number}", f"topology_master-{number}", f"metrics_manager-{number}"]


def test_missing_standby_degrades_the_topology() -> None:
    status = topology_status(record(replicas=2), answers(0, 1, 2), NOW)
    assert status.state == "degraded"
    assert [c.id for c in status.containers if c.state is not S.RUNNING] == [100_001]
    assert "heron_container-100001" in status.cause()


def test_silent_published_container_is_dead_with_its_processes() -> None:
    status = topology_status(record(), answers(0, 1), NOW)
    assert status.state == "degraded"
    dead = {p.name for p in status.processes if p.state is S.DEAD}
    assert dead == {p.name for p in status.processes if p.container == 2}


def test_restarting_container_is_shown() -> None:
    told = answers(0, 1)
    assert told.scheduler is not None
    again = process("heron_container", "heron_container-2", 2, S.RESTARTING, restarts=1, last_error="killed by SIGKILL")
    told = replace(told, scheduler=replace(told.scheduler, containers=(*told.scheduler.containers[:2], again)))
    status = topology_status(record(containers=(0, 1)), told, NOW)
    assert status.state == "degraded"
    assert status.containers[2].state is S.RESTARTING
    assert {p.state for p in status.processes if p.container == 2} == {S.RESTARTING, S.STARTING}
    assert status.unwell()[0] == again


def test_restarts_of_a_container_come_from_its_scheduler() -> None:
    told = answers(0, 1, 2)
    assert told.scheduler is not None
    past = replace(told.scheduler.containers[1], restarts=4, last_error="killed by SIGKILL")
    scheduler = replace(told.scheduler, containers=(told.scheduler.containers[0], past))
    status = topology_status(record(), replace(told, scheduler=scheduler), NOW)
    (found,) = [p for p in status.processes if p.name == "heron_container-1"]
    assert (found.state, found.restarts, found.last_error) == (S.RUNNING, 4, "killed by SIGKILL")
    assert status.state == "running", "what is past does not count against it"


def test_new_topology_is_starting_for_a_limited_time() -> None:
    young = replace(record(planned=False, containers=()), scheduler=None)
    assert topology_status(young, ProcessReplies(), 1000.0 + START_GRACE_SECS - 1).state == "starting"
    old = topology_status(young, ProcessReplies(), 1000.0 + START_GRACE_SECS + 1)
    assert (old.state, old.cause()) == (
        "failing", f"none of its processes run, as after a reboot; `heron restart {old.execution.cluster} "
        f"{old.execution.topology}` starts it",
    )  # fmt: skip


def test_container_waiting_for_a_node_is_named() -> None:
    told = answers(0)
    assert told.scheduler is not None
    waits = process(
        "heron_container", "heron_container-1", 1, S.STARTING, last_error="waits for a place: none is large"
    )
    scheduler = SchedulerStatus(told.scheduler.scheduler, (told.scheduler.containers[0], waits))
    young = replace(record(planned=False, containers=(0,)))
    status = topology_status(young, replace(told, scheduler=scheduler), 1000.0 + START_GRACE_SECS - 1)
    assert (status.state, status.cause()) == (
        "starting", "heron_container-1 is starting: waits for a place: none is large",
    )  # fmt: skip


def test_queued_topology_is_waiting_with_its_reason() -> None:
    own = replace(process("heron_scheduler", "heron_scheduler", 0, S.STARTING), last_error="waiting: job 7 (Resources)")
    told = ProcessReplies(SchedulerStatus(own))
    for planned in (False, True):  # for the first time, or put back after a node was lost
        status = topology_status(record(planned=planned, containers=()), told, NOW)
        assert (status.state, status.cause()) == ("waiting", "waiting: job 7 (Resources)")
        assert {p.state for p in status.processes} == {S.STARTING}
    status = topology_status(record(), replace(answers(2), scheduler=told.scheduler), NOW)
    assert status.state == "waiting", "a container on a node that is cut off does not change that"
    gone = ProcessReplies(SchedulerStatus(replace(own, state=S.DEAD, last_error="job 7 is CANCELLED")))
    status = topology_status(record(containers=()), gone, NOW)
    assert (status.state, status.processes[0].last_error) == ("failing", "job 7 is CANCELLED")
    assert "heron restart" not in status.cause(), "somebody has said more"


def test_dead_scheduler_degrades_a_running_topology() -> None:
    told = replace(answers(0, 1, 2, scheduler=False), errors={"heron_scheduler": "nobody answers"})
    status = topology_status(record(), told, NOW)
    assert status.state == "degraded"
    assert (status.processes[0].state, status.processes[0].last_error) == (S.DEAD, "nobody answers")


def test_causes_of_all_stream_managers_are_merged() -> None:
    cause = Cause(CauseKind.TASK, "count", 2, 2)
    managers = tuple(StreamManagerStatus(n, True, causes=(cause,)) for n in (1, 2))
    told = replace(answers(0, 1, 2), master=MasterStatus(1, RUNNING, PlanVersion(1, 1), managers))
    assert topology_status(record(), told, NOW).causes == (cause,)


SLOW = Bottleneck("count", 2, 4.0)


@pytest.mark.parametrize(
    ("flows", "state", "says"),
    [
        ([FlowStatus(5), FlowStatus()], "running", ""),
        ([FlowStatus(5, 31_000, SLOW), FlowStatus(2)], "running", ""),  # other tuples get through
        (
            [FlowStatus(5, 31_000, Bottleneck("split", 1, 1.0)), FlowStatus(0, 0, SLOW)],
            "failing",
            f"bottleneck: {SLOW}",
        ),
        (
            [FlowStatus(5, 31_000), FlowStatus(2, 40_000)],
            "failing",
            "acked for 31 s although tuples are in flight; no stream",
        ),
    ],
)
def test_topology_with_a_stalled_flow_is_failing(flows: list[FlowStatus], state: str, says: str) -> None:
    managers = tuple(StreamManagerStatus(n, True, flow=flow) for n, flow in enumerate(flows, 1))
    told = replace(answers(0, 1, 2), master=MasterStatus(1, RUNNING, PlanVersion(1, 1), managers))
    status = topology_status(record(), told, NOW)
    assert status.state == state
    assert says in status.stalled
    assert bool(status.stalled) == (state == "failing")
    assert from_document(to_document(status)).stalled == status.stalled


@pytest.mark.parametrize(
    ("at_end", "flow", "unconfirmed", "paused", "state"),
    [
        (True, FlowStatus(), (), False, "finished"),
        (False, FlowStatus(), (), False, "running"),
        (True, FlowStatus(1), (), False, "running"),
        (True, FlowStatus(0, 0, SLOW), (), False, "running"),
        (True, FlowStatus(), (2,), False, "running"),
        (True, FlowStatus(), (), True, "paused"),
    ],
)
def test_topology_with_all_spouts_at_their_end_has_finished(
    at_end: bool, flow: FlowStatus, unconfirmed: tuple[int, ...], paused: bool, state: str
) -> None:
    found = record()
    found = replace(found, execution=replace(found.execution, state=PAUSED if paused else RUNNING))
    spouts = [spec.name for spec in found.definition.components if spec.is_spout]
    told, left = answers(0, 1, 2), not at_end
    for number, container in told.containers.items():
        processes = []
        for each in container.processes:
            doing = AT_END if each.component in spouts and not left else ""
            left = left and each.component not in spouts  # the other spout continues
            processes.append(replace(each, doing=doing))
        told.containers[number] = replace(container, processes=tuple(processes))  # type: ignore[index]
    manager = StreamManagerStatus(1, True, flow=flow)
    master = MasterStatus(
        1, RUNNING, PlanVersion(1, 1), (manager,), tasks_state=CheckpointStatus(unconfirmed=unconfirmed)
    )
    assert topology_status(found, replace(told, master=master), NOW).state == state
    assert topology_status(found, told, NOW).state == ("paused" if paused else "running"), "the master has not answered"


@pytest.mark.parametrize(
    ("wanted", "states", "restarts", "planned", "state"),
    [
        (RUNNING, [S.RUNNING, S.RUNNING], 0, True, "running"),
        (PAUSED, [S.RUNNING, S.RUNNING], 0, True, "paused"),
        (KILLED, [S.RUNNING, S.DEAD], 0, True, "killed"),
        (RUNNING, [S.RUNNING, S.STARTING], 0, False, "starting"),
        (RUNNING, [S.RUNNING, S.STARTING], 1, False, "starting"),
        (RUNNING, [S.RUNNING, S.STARTING], 0, True, "starting"),
        (RUNNING, [S.RUNNING, S.STARTING], 1, True, "degraded"),
        (PAUSED, [S.RUNNING, S.RESTARTING], 1, True, "degraded"),
        (RUNNING, [S.RUNNING, S.RESTARTING], KEEPS_DYING, False, "failing"),
        (RUNNING, [S.RUNNING, S.STARTING], KEEPS_DYING, True, "failing"),
        (RUNNING, [S.RUNNING, S.RUNNING], KEEPS_DYING, True, "running"),
        (RUNNING, [S.DEAD, S.DEAD], 0, True, "failing"),
        (RUNNING, [S.RUNNING, S.DEAD], 0, True, "degraded"),
        (RUNNING, [S.RUNNING, S.STOPPED], 0, True, "degraded"),
    ],
)
def test_topology_state_follows_process_states(
    wanted: TopologyState, states: list[ProcessState], restarts: int, planned: bool, state: str
) -> None:
    past = {"restarts": restarts, "young_deaths": restarts}
    processes = [process("k", f"p{n}", 1, s, **(past if n else {})) for n, s in enumerate(states)]
    assert topology_state(wanted, processes, planned) == state


def test_rare_deaths_in_a_long_life_do_not_make_it_failing() -> None:
    old = process("k", "old", 1, S.STARTING, restarts=40, young_deaths=1)
    assert topology_state(RUNNING, [process("k", "p", 1), old], True) == "degraded"
    asked = process("k", "asked", 1, S.STARTING, restarts=2, young_deaths=3)  # it exited on request of a plan
    assert topology_state(RUNNING, [process("k", "p", 1), asked], True) == "degraded"


@given(
    wanted=st.sampled_from(list(TopologyState)),
    told=st.lists(st.tuples(st.sampled_from(list(S)), st.integers(0, 5)), min_size=1),
    planned=st.booleans(),
)
def test_topology_is_running_exactly_if_all_processes_run(
    wanted: TopologyState, told: list[tuple[ProcessState, int]], planned: bool
) -> None:
    processes = [process("k", "p", 1, state, restarts=restarts, young_deaths=restarts) for state, restarts in told]
    state = topology_state(wanted, processes, planned)
    all_run = all(p.state is S.RUNNING for p in processes)
    assert (state in ("running", "paused")) == (all_run and wanted is not KILLED)
    assert state == topology_state(wanted, processes[::-1], planned)


def test_json_has_a_fixed_shape_with_nulls() -> None:
    data = as_json(topology_status(record(), answers(0, 1), NOW))
    assert list(data) == [
        "cluster", "role", "environ", "topology", "state", "cause", "mode", "submitted_at", "code_user",
        "containers", "processes",
    ]  # fmt: skip
    assert data["state"] == "degraded"
    assert data["cause"] == "stream_manager-2 is dead: container 2 is not available"
    assert data["submitted_at"] == "1970-01-01T00:16:40.000+00:00"
    assert data["containers"][0] == {"id": 0, "host": "host0", "state": "running"}
    instance = next(p for p in data["processes"] if p["name"] == "container_2_count_3")
    assert instance == {
        "kind": "heron_instance", "name": "container_2_count_3", "container": 2, "component": "count", "task": 3,
        "pid": None, "state": "dead", "since": "1970-01-01T00:16:40.000+00:00", "restarts": 0,
        "last_error": instance["last_error"],
    }  # fmt: skip
    assert data["processes"][0]["component"] is None


def test_container_in_trouble_degrades_the_topology() -> None:
    told = answers(0, 1, 2)
    full = "the disk of /d is full"
    told = replace(told, containers={n: replace(a, trouble=full if n else "") for n, a in told.containers.items()})
    status = topology_status(record(), told, NOW)
    assert (status.state, status.cause()) == ("degraded", f"containers 1, 2: {full}")
    assert from_document(to_document(status)).containers == status.containers


FRAME = ExceptionReport("count", "container_2_count_3", "KeyError", "'usr'", "", 40, 1.0, 2.0)


def counting(**of_count: float) -> ProcessReplies:
    """Return answers of all processes, with these counters for ``count``."""
    counts = {"count": {f"__{name.replace('_', '-')}-count": total for name, total in of_count.items()}}
    return replace(answers(0, 1, 2), counts=counts, exceptions=(FRAME,))


def test_bolt_that_fails_all_tuples_is_the_first_cause() -> None:
    flow = FlowStatus(in_flight=5, stalled_ms=40_000)
    master = MasterStatus(1, RUNNING, PlanVersion(1, 1), (StreamManagerStatus(1, True, flow=flow),))
    told = replace(counting(execute=40, exception=40, fail=40), master=master)
    status = topology_status(record(), told, NOW)
    assert (status.state, status.cause()) == ("failing", "all tuples of count fail: KeyError: 'usr'")
    shown = from_document(to_document(status))
    assert shown.cause() == status.cause()


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ({"execute": 5000, "exception": 5000}, "failing"),  # nothing is tracked, so nothing stalls
        ({"execute": 20, "exception": 20}, "running"),  # shown, but perhaps only the first tuples are bad
        ({"execute": 5000, "exception": 200, "ack": 4800, "fail": 200}, "running"),
        ({"execute": 5000, "exception": 50, "fail": 5000}, "running"),  # batches
    ],
)
def test_topology_fails_if_many_tuples_fail_and_none_succeeds(counts: Any, state: str) -> None:
    assert topology_status(record(), counting(**counts), NOW).state == state


def test_instance_that_keeps_exiting_by_its_own_error_is_failing() -> None:
    def looping(since: float, deaths: int, error: str) -> str:
        told = answers(0, 1, 2)
        rows = tuple(
            replace(p, restarts=9, young_deaths=deaths, since=since, last_error=error) if p.component == "count" else p
            for p in told.containers[2].processes
        )
        containers = {**told.containers, 2: replace(told.containers[2], processes=rows)}
        return topology_status(record(), replace(told, containers=containers), NOW).state

    assert looping(NOW - 2, 4, "exit code 1: KeyError: 'usr'") == "failing"
    assert looping(NOW - 2, 2, "exit code 1: KeyError: 'usr'") == "running"
    assert looping(NOW - 600, 4, "exit code 1: KeyError: 'usr'") == "running", "it has lived for long since"
    assert looping(NOW - 2, 4, "killed by SIGKILL") == "running", "of no fault of its own"


def test_guarantee_and_dead_letter_count_are_shown() -> None:
    told = replace(answers(0, 1, 2), counts={"count": {"failed-record-count": 7.0}})
    status = topology_status(record(), told, NOW)
    assert (as_json(status)["mode"], as_json(status)["put_aside"]) == ("ATMOST_ONCE", 7)
    shown = from_document(to_document(status))
    assert (shown.mode, shown.put_aside) == ("ATMOST_ONCE", 7)


def test_late_records_are_shown_by_component() -> None:
    assert "late" not in as_json(topology_status(record(), answers(0, 1, 2), NOW))
    told = replace(answers(0, 1, 2), counts={"count": {"late-count": 12.0}, "word": {"late-count": 0.0}})
    status = topology_status(record(), told, NOW)
    assert as_json(status)["late"] == {"count": 12}
    assert from_document(to_document(status)).late == {"count": 12}


def full_status() -> TopologyStatus:
    record = TopologyRecord(definition(), packing(), None, execution("/home"), None, None, ())
    sick = process("heron_instance", "container_2_count_3", 2, ProcessState.DEAD, component="count", task=3,
                   restarts=4, last_error="exit code 1", last_lines=("a", "b"))  # fmt: skip
    containers = {2: ContainerStatus(2, "h", 1, (*all_processes(2)[:-1], sick))}
    causes = (Cause(CauseKind.TASK, "count", 2, 2), Cause(CauseKind.LINK, "", 0, 1, 2))
    master = MasterStatus(1, TopologyState.RUNNING, PlanVersion(1, 1), (StreamManagerStatus(2, True, causes=causes),))
    report = ExceptionReport("count", "container_2_count_3", "ValueError", "bad", "Traceback…", 7, 1.0, 2.0)
    return topology_status(record, ProcessReplies(None, containers, master, (report,)), 5000.0)


@pytest.mark.parametrize("code_user", [None, "", "heronry-code"])
def test_status_survives_json(code_user: str | None) -> None:
    made = replace(full_status(), code_user=code_user)
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
        from_document({**to_document(full_status()), **change})


def test_cause_of_waiting_survives_json() -> None:
    made = replace(full_status(), state="waiting", waiting="the queue of the cluster is full")
    back = from_document(json.loads(json.dumps(to_document(made))))
    assert back.waiting == made.waiting
    assert back.cause() == made.cause() == "the queue of the cluster is full"
