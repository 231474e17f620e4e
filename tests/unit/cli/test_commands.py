"""CLI commands for a topology whose processes are real gRPC servers, and for a home without a store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from heron_cli.application import make_app
from heron_control.schedulers.topology_folder import LAUNCH_FILE, place_of
from heron_runtime.launch import Launch
from heron_runtime.model.dataflow import Cause, CauseKind
from heron_runtime.model.plan import PlanVersion
from heron_runtime.model.settings import ALL_SETTINGS
from heron_runtime.model.topology import TopologyState
from heron_runtime.net.identity import draw_key
from heron_runtime.wire.container import RestartContainer
from heron_runtime.wire.master import (
    ExceptionsReply,
    MasterStatus,
    MetricsReply,
    MetricValue,
    SetState,
    StreamManagerStatus,
)
from heron_runtime.wire.metrics import ExceptionReport
from tests.support.stub_processes import NAME, StubProcesses, all_processes, process

PLACE = "local/me"
STATUS = MasterStatus(1, TopologyState.RUNNING, PlanVersion(1, 1))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubProcesses]:
    """Yield a submitted topology without processes."""
    monkeypatch.setenv("HERONRY_HOME", str(tmp_path / "home"))
    made = StubProcesses(tmp_path / "home")
    yield made
    made.close()


def heron(*arguments: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(make_app(), list(arguments))


def data(*arguments: str) -> Any:
    """Return the JSON output of a command."""
    result = heron(*arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def all_well(
    world: StubProcesses, status: MasterStatus = STATUS, metrics: MetricsReply | None = None, **answers: Any
) -> None:
    world.add_master(status, metrics or MetricsReply(5.0), **answers)
    world.add_scheduler(*(process("heron_container", f"heron_container-{n}", n) for n in range(3)))
    for number in range(3):
        world.add_container(number, *all_processes(number))


def test_status_and_list_show_a_running_topology(world: StubProcesses) -> None:
    all_well(world)
    found = data("status", PLACE, NAME)
    assert found["state"] == "running"
    assert len(found["processes"]) == 13
    assert data("list", "local") == [
        {
            "cluster": "local", "role": "me", "environ": "default", "topology": NAME, "state": "running",
            "containers": 2, "tasks": 3, "submitted_at": "1970-01-01T00:16:40.000+00:00",
        }
    ]  # fmt: skip
    assert data("list", "local/somebody") == []
    shown = heron("status", PLACE, NAME)
    assert "words at local/me/default: running" in shown.stdout
    assert "container_2_count_3" in shown.stdout
    assert "backpressure" not in shown.stdout
    assert "\x1b" not in shown.stdout


def test_status_names_causes_and_exceptions(world: StubProcesses) -> None:
    cause = Cause(CauseKind.TASK, "count", 2, 2)
    status = MasterStatus(1, TopologyState.RUNNING, PlanVersion(1, 1), (StreamManagerStatus(2, True, causes=(cause,)),))
    report = ExceptionReport("count", "container_2_count_2", "ValueError", "bad\x1b[2J word", "Traceback…", 7, 1.0, 2.0)
    all_well(world, status, Exceptions=ExceptionsReply((report,)))
    shown = heron("status", PLACE, NAME)
    assert "count task 2 (seen in container 2)" in shown.stdout
    assert "ValueError in container_2_count_2, 7 times" in shown.stdout
    assert "bad\\x1b[2J word" in shown.stdout  # escaped, not interpreted
    assert "Traceback…" not in shown.stdout
    assert "Traceback…" in heron("status", PLACE, NAME, "--verbose").stdout


def test_dead_server_is_reported_without_delay(world: StubProcesses) -> None:
    all_well(world)
    world._do(world.servers.pop().stop(0))
    found = data("status", PLACE, NAME)
    assert found["state"] == "degraded"
    assert {p["name"] for p in found["processes"] if p["state"] == "dead"} == {
        "heron_container-2", "stream_manager-2", "metrics_manager-2", "container_2_count_2", "container_2_count_3",
    }  # fmt: skip
    assert "no process is listening" in next(p["last_error"] for p in found["processes"] if p["state"] == "dead")


def test_unknown_names_and_places_exit_with_3(world: StubProcesses) -> None:
    result = heron("status", PLACE, "wrods")
    assert result.exit_code == 3
    assert "did you mean 'words'?" in result.stderr
    assert result.stdout == ""
    result = heron("status", "locl/me", NAME)
    assert result.exit_code == 3
    assert "did you mean 'local'?" in result.stderr


def test_process_without_the_key_is_not_trusted(world: StubProcesses) -> None:
    all_well(world)
    (world.place / "key.pem").chmod(0o600)
    (world.place / "key.pem").write_bytes(draw_key())  # the listeners' key differs now
    found = data("status", PLACE, NAME)
    assert {p["state"] for p in found["processes"]} == {"dead"}
    assert "authentication failed: another process is listening" in found["processes"][0]["last_error"]
    assert heron("metrics", PLACE, NAME).exit_code == 6


def test_missing_key_names_the_remedy(world: StubProcesses) -> None:
    (world.place / "key.pem").unlink()
    result = heron("status", PLACE, NAME)
    assert result.exit_code == 1
    assert "heron kill" in result.stderr
    assert data("list", "local")[0]["state"] == "failing"


def test_logs_of_a_component_come_from_its_containers(world: StubProcesses) -> None:
    files = {"container_2_count_2.log": b"two\n", "container_2_count_3.log": b"a\nb\nthree\n"}
    world.add_container(2, *all_processes(2), files=files)
    both = heron("logs", PLACE, NAME, "count", "--lines", "2")
    assert both.stdout.splitlines() == [
        "container_2_count_2 | two",
        "container_2_count_3 | b",
        "container_2_count_3 | three",
    ]
    one = heron("logs", PLACE, NAME, "container_2_count_3")
    assert one.stdout == "a\nb\nthree\n"
    assert heron("logs", PLACE, NAME, "stream_manager-2").exit_code == 3


def test_logs_of_a_dead_container_come_from_the_disk(world: StubProcesses) -> None:
    (world.place / "log-files" / "stream_manager-1.log").write_bytes(b"last\xff words\n")
    shown = heron("logs", PLACE, NAME, "stream_manager-1")
    assert shown.stdout == "last\N{REPLACEMENT CHARACTER} words\n"
    assert heron("logs", PLACE, NAME, "metrics_manager-1").exit_code == 3
    wrong = heron("logs", PLACE, NAME, "stream_manger-1")
    assert (wrong.exit_code, "did you mean 'stream_manager-1'?" in wrong.stderr) == (3, True)
    assert "container_1_word_1" in heron("logs", PLACE, NAME).stdout


def test_metrics_show_totals_and_instances(world: StubProcesses) -> None:
    value = MetricValue("word", "container_1_word_1", "__emit-count/default", "counter", 12.0, 2.0)
    all_well(world, metrics=MetricsReply(60.0, (value,)))
    found = data("metrics", PLACE, NAME, "--interval", "60", "--component", "word")
    assert found["components"]["word"]["__emit-count/default"]["total"] == 12.0
    shown = heron("metrics", PLACE, NAME)
    assert shown.stdout.splitlines()[1].split() == ["word", "12", "2"]
    assert "all time" in shown.stderr
    detail = heron("metrics", PLACE, NAME, "__emit-count")
    assert "container_1_word_1" in detail.stdout
    assert heron("metrics", PLACE, NAME, "--component", "wrd").exit_code == 3


def test_metrics_without_reports_say_so(world: StubProcesses) -> None:
    all_well(world)
    shown = heron("metrics", PLACE, NAME)
    assert "no task has reported metrics yet" in shown.stderr
    assert [line.split() for line in shown.stdout.splitlines()[1:]] == [["word"], ["count"]]


def test_activate_and_deactivate_reach_the_master(world: StubProcesses) -> None:
    all_well(world, SetState=STATUS)
    assert heron("deactivate", PLACE, NAME).exit_code == 0
    assert world.asked[-1] == SetState(TopologyState.PAUSED, 1)
    assert heron("activate", PLACE, NAME).exit_code == 0
    assert world.asked[-1] == SetState(TopologyState.RUNNING, 1)


def test_restart_asks_the_scheduler_and_waits(world: StubProcesses) -> None:
    (world.place / "launch.json").write_text(
        json.dumps(
            {
                "cluster": "local", "role": "me", "environ": "default", "topology": NAME, "topology_id": f"{NAME}-abc",
                "store_url": world.home.state_store("local").url, "home": str(world.place),
                "runtime_dir": "/tmp/heronry/00000000",
            }
        )
    )  # fmt: skip
    all_well(world)
    result = heron("restart", PLACE, NAME, "1")
    assert result.exit_code == 0, result.stderr
    assert RestartContainer(1) in world.asked
    assert heron("restart", PLACE, NAME, "7").exit_code == 3


def test_doctor_finds_a_stale_topology(world: StubProcesses) -> None:
    result = heron("doctor", "-o", "json")
    assert result.exit_code == 1
    findings = {finding["check"]: finding for finding in json.loads(result.stdout)}
    assert findings["stale topology"]["cure"] == "Run heron kill local/me/default words"
    assert findings["state store"]["verdict"] == "good"
    heron("kill", PLACE, NAME)
    assert heron("doctor").exit_code == 0


def test_config_is_set_listed_explained_and_unset(world: StubProcesses) -> None:
    key = "heron.metrics.interval.secs"
    assert data("config", "local", "list") == []
    assert heron("config", "local", "set", key, "2.5").exit_code == 0
    assert data("config", "local", "list") == [{"key": key, "value": 2.5}]
    explained = {row["key"]: row for row in data("config", "local", "explain")}
    assert set(explained) == set(ALL_SETTINGS)
    assert explained[key]["value"] == 2.5
    assert explained[key]["source"].endswith("config.yaml")
    assert explained["topology.stmgrs"]["source"] == "default"
    assert heron("config", "local", "unset", key).exit_code == 0
    assert heron("config", "local", "unset", key).exit_code == 3
    assert heron("config", "local", "set", key, "-1").exit_code == 2
    assert heron("config", "local", "set", "heron.metrics.intervals", "1").exit_code == 2
    assert heron("config", "local", "set", key).exit_code == 2


@pytest.mark.parametrize(
    "arguments", [(), ("nonsense",), ("status",), ("list", "a/b/c/d"), ("list", "local", "--nope")]
)
def test_usage_errors_exit_with_2(world: StubProcesses, arguments: tuple[str, ...]) -> None:
    assert heron(*arguments).exit_code == 2


def test_version_lists_components(world: StubProcesses) -> None:
    assert set(data("version")) == {"heronry", "python", "grpc", "protobuf"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "home"
    monkeypatch.setenv("HERONRY_HOME", str(made))
    return made


def test_before_the_first_submit_there_are_no_topologies(home: Path) -> None:
    listed = heron("list", "local", "-o", "json")
    assert json.loads(listed.output) == []
    assert heron("kill", "local", "words").exit_code == 3
    assert not (home / "state").exists()


def test_a_removed_store_is_reported_and_not_recreated(home: Path) -> None:
    place = place_of(home, "local", "me", "default", "words")
    place.mkdir(parents=True)
    launch = Launch(
        "local", "me", "default", "words", "words-1", f"files://{home}/state", str(place), str(home / "run")
    )
    launch.save(place / LAUNCH_FILE)
    listed = heron("list", "local/me", "-o", "json")
    assert listed.exit_code == 6
    assert heron("status", "local/me", "words").exit_code == 6
    assert heron("kill", "local/me", "words").exit_code == 0, "its processes can be ended"
    assert not place.exists()
    assert json.loads(heron("list", "local/me", "-o", "json").output) == []
    assert not (home / "state").exists()
