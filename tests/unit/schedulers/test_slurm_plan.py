"""Slurm requests, the output of Slurm commands, and the runs of a job."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_control.schedulers import slurm_plan as plan
from heron_control.schedulers.slurm_node import RUN, RUN_FILE, is_replaced, launch_on, read_nodes, write_nodes
from heron_runtime.failures import NotAllowed
from heron_runtime.launch import Launch
from heron_runtime.model.ids import MASTER_CONTAINER
from heron_runtime.model.plan import ContainerPlan, InstancePlan, PackingPlan, Resources
from heron_runtime.model.settings import Keys, MiB

CONFIG: Mapping[str, Any] = {}
SIZES = st.lists(
    st.tuples(st.floats(0.1, 64), st.integers(16 * MiB, 1 << 38), st.integers(1, 5)), min_size=1, max_size=8
)
SETTINGS = st.fixed_dictionaries(
    {}, optional={Keys.HERON_SLURM_SPARE_CONTAINERS.name: st.integers(0, 9), Keys.HERON_SLURM_NODES.name: st.just(2)}
)


def launch(home: str = "/srv/a b/words", **settings: Any) -> Launch:
    return Launch("slurm", "ads", "prod", "words", "words-0123", "files:///srv/x", home, "", settings=settings)


def packing(sizes: list[tuple[float, int, int]], first: int = 1) -> PackingPlan:
    containers, task = [], 1
    for number, (cpu, ram, tasks) in enumerate(sizes, first):
        instances = tuple(InstancePlan(task + n, "bolt", task + n - 1, Resources(0.5, MiB)) for n in range(tasks))
        task += tasks
        containers.append(ContainerPlan(number, instances, Resources(cpu, ram)))
    return PackingPlan("words", tuple(containers))


def refusal(allocation: plan.Allocation, before: PackingPlan, after: PackingPlan) -> str:
    """Return the hint of a rejected update, or an empty string."""
    try:
        plan.check_room(allocation, before, after, CONFIG)
    except NotAllowed as error:
        return error.cure
    return ""


@given(SIZES, SETTINGS)
def test_every_container_has_a_slot_that_fits(sizes: list[Any], settings: dict[str, Any]) -> None:
    made = packing(sizes)
    allocation = plan.allocation_of(made, CONFIG, settings)
    numbers = [MASTER_CONTAINER, *(container.container for container in made.containers)]
    assert allocation.slots == len(numbers) + settings.get(Keys.HERON_SLURM_SPARE_CONTAINERS.name, 0)
    for number in numbers:
        need = plan.need_of(made, CONFIG, number)
        assert need.cpus >= 1
        assert allocation.slot.covers(need)
    for container in made.containers:
        need = plan.need_of(made, CONFIG, container.container)
        assert need.cpus >= container.resources.cpu
        assert need.ram_mib * MiB >= container.resources.ram_bytes
    assert plan.Allocation.of_json(allocation.to_json()) == allocation


@given(SIZES, SETTINGS)
def test_job_requests_the_memory_of_its_slots(sizes: list[Any], settings: dict[str, Any]) -> None:
    allocation = plan.allocation_of(packing(sizes), CONFIG, settings)
    given_ = dict(
        word.lstrip("-").split("=", 1) for word in plan.job_arguments(launch(**settings), allocation) if "=" in word
    )
    assert int(given_["ntasks"]) == allocation.slots
    assert int(given_["mem-per-cpu"].removesuffix("M")) * int(given_["cpus-per-task"]) >= allocation.slot.ram_mib
    least, _, most = given_["nodes"].partition("-")
    assert int(least) == settings.get(Keys.HERON_SLURM_NODES.name, 1)
    assert int(most) >= int(least)


@given(SIZES, st.integers(0, 3), st.integers(0, 4), st.integers(0, 4))
def test_update_is_rejected_exactly_if_slots_are_missing(sizes: list[Any], spare: int, kept: int, new: int) -> None:
    before = packing(sizes)
    allocation = plan.allocation_of(before, CONFIG, {Keys.HERON_SLURM_SPARE_CONTAINERS.name: spare})
    small = [(0.1, 16 * MiB, 1)] * new
    after = PackingPlan("words", (*before.containers[:kept], *packing(small, first=100).containers))
    cure = refusal(allocation, before, after)
    wanted = "" if new <= spare else f"{Keys.HERON_SLURM_SPARE_CONTAINERS.name}={new}"
    assert cure.rsplit(" ", 1)[-1] == wanted


def test_container_that_outgrows_its_slot_is_rejected_by_name() -> None:
    before = packing([(1.0, 512 * MiB, 2)])
    allocation = plan.allocation_of(before, CONFIG, {})
    with pytest.raises(NotAllowed, match="container 1 of the new plan needs 65 cores"):
        plan.check_room(allocation, before, packing([(64.5, 512 * MiB, 2)]), CONFIG)


def test_squeue_output_is_parsed() -> None:
    text = "7|PENDING|Resources\n8|RUNNING|None\n9|CANCELLED|None\n10|COMPLETING|None\n\nslurm_load_jobs: noise\n"
    jobs = plan.read_jobs(text)
    assert [(job.id, job.started, job.over) for job in jobs] == [
        ("7", False, False), ("8", True, False), ("9", False, True), ("10", True, False),
    ]  # fmt: skip
    assert str(jobs[0]) == "job 7 is PENDING (Resources)"
    steps = plan.read_pairs("7.0|heron_container-1\n7.1|heron_container-11\n7.batch|batch\n")
    assert plan.steps_named(steps, 1) == ["7.0"], "the step of another container is not touched"


def test_address_that_may_be_the_loopback_is_not_bound() -> None:
    named = launch_on(launch(), {"n1": "n1.site"}, "n1", 3)
    assert (named.host, named.bind) == ("n1.site", "0.0.0.0")
    numbered = launch_on(launch(), {"n1": "10.0.0.7"}, "n1", 3)
    assert (numbered.host, numbered.bind_host) == ("10.0.0.7", "10.0.0.7")
    assert numbered.runtime_dir != launch_on(launch(), {}, "n1", 4).runtime_dir


def test_strangers_are_other_machines() -> None:
    assert plan.strangers(["vm", "VM.site", "vm2"], "vm.other") == ["vm2"]


def run_script(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    file = folder / "launch.json"
    script = plan.job_script(launch(str(folder)), str(file), command, {"MARK": "it's"})
    return subprocess.run(["sh"], input=script, text=True, capture_output=True, timeout=30, check=False)


def test_job_script_restarts_the_scheduler_until_it_succeeds(tmp_path: Path) -> None:
    folder = tmp_path / "it's here"
    folder.mkdir()
    (folder / "launch.json").touch()
    program = folder / "program"
    program.write_text(f'#!/bin/sh\necho "${RUN} $MARK $*" >>"{folder}/said"\n[ $(wc -l <"{folder}/said") = 2 ]\n')
    program.chmod(0o755)
    done = run_script(folder, [str(program)])
    assert done.returncode == 0, done.stderr
    first, second = (folder / "said").read_text().splitlines()
    assert first == second, "both belong to one run"
    run, rest = first.split(" ", 1)
    assert rest == f"it's --launch {folder}/launch.json"
    assert (folder / "run").read_text() == run


def test_node_without_the_folder_reports_it(tmp_path: Path) -> None:
    done = run_script(tmp_path, ["true"])
    assert done.returncode == 66
    assert "every node must see HERONRY_HOME" in done.stderr


def test_scheduler_of_a_removed_topology_is_not_restarted(tmp_path: Path) -> None:
    (tmp_path / "launch.json").touch()
    done = run_script(tmp_path, ["sh", "-c", 'rm "$2"; exit 1', "-"])
    assert done.returncode == 0


def test_run_is_replaced_only_once_another_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = launch(str(tmp_path))
    monkeypatch.setenv(RUN, "n1-7-1")
    assert not is_replaced(words), "the folder does not say"
    (tmp_path / RUN_FILE).write_text("n1-7-1")
    assert not is_replaced(words)
    (tmp_path / RUN_FILE).write_text("n2-9-2")
    assert is_replaced(words)
    monkeypatch.delenv(RUN)
    assert not is_replaced(words), "what runs in no job belongs to none"


def test_nodes_of_a_job_are_read_back(tmp_path: Path) -> None:
    write_nodes(tmp_path, {"n1": "10.0.0.1", "n2": "n2.site"})
    assert read_nodes(tmp_path) == {"n1": "10.0.0.1", "n2": "n2.site"}
