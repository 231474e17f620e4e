"""Run a program that writes to servers through its staged commands, without Spark.

Folders, journals, manifests and commits are real (``data_pipeline/shell/staged.py``, ``output.py``, ``portions.py``).
The server is in memory, tasks are function calls, and the driver can die after any step. What the operating system
skips for a dead process is skipped here as well.
"""

from __future__ import annotations

import socket
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

import pytest

from data_pipeline.core.plan import Output, Plan
from data_pipeline.core.render import ToServer
from data_pipeline.core.staged import Report, number_of
from data_pipeline.shell import output
from data_pipeline.shell.output import OutputExists, OutputFolder, Place
from data_pipeline.shell.staged import StageTask, Staging, clear_journal, settle, settle_for
from heronry.api.state import Checkpoint
from heronry.connect.seats import Seat, SeatedSink
from heronry.connect.settings import ConnectError
from heronry.streamlet import server_sinks
from heronry.streamlet.server_sinks import ServerSink

STEPS = ("left", "right")
MARKED = "left"  # a step whose system keeps the last committed number of each writer, as lake tables do
SUMS = "sums"  # a step whose rows are replaced, by key
PROGRAM = "p"
LIVES = 10**6  # steps
FILE_STEPS = ("write", "add", "remove", "publish", "remove_work", "clear_leftovers")  # of ``output._Local``


class Died(BaseException):
    """Death of the driver."""


class MemoryServer:
    """Data of a server, by step; ``seen`` and ``rows`` are visible to readers.

    ``marks``: the last number that each writer has committed, kept permanently.
    """

    def __init__(self) -> None:
        self.staged: dict[str, dict[str, tuple[str, list[Any]]]] = {}
        self.committed: dict[str, set[str]] = {}
        self.marks: dict[str, int] = {}
        self.seen: dict[str, Counter[Any]] = {step: Counter() for step in STEPS}
        self.rows: dict[Any, Any] = {}

    def take(self, step: str, rows: list[Any]) -> None:
        """Make rows visible."""
        if step == SUMS:
            self.rows.update(rows)
        else:
            self.seen[step].update(rows)


class MemorySink(SeatedSink):
    """Sink connector of the server."""

    world: ClassVar[StagedEngine]

    @classmethod
    def config_problems(cls, config: Any) -> Iterator[str]:
        return iter(())

    @classmethod
    def encoded(cls, fields: Sequence[str], values: Sequence[Any]) -> Any:
        return tuple(values)

    def open(self, config: dict[str, Any], seat: Seat) -> None:
        self.step, self.server, self.taken = seat.step, self.world.server, list[Any]()
        self.writer = seat.writer or seat.step

    def take(self, encoded: Any) -> None:
        self.taken.append(encoded)

    def prepare(self, checkpoint: Checkpoint) -> str:
        self.server.staged.setdefault(self.step, {})[checkpoint.name] = self.writer, self.taken
        return checkpoint.name

    def commit(self, checkpoint: int, token: str) -> None:
        with self.world.driver_step():
            if token in self.server.committed.get(self.step, ()):
                return
            if token not in self.server.staged.get(self.step, {}):
                raise ConnectError(f"batch {token} was prepared and is not there")
            writer, taken = self.server.staged[self.step].pop(token)
            step = self.step.partition(".")[2].partition("@")[0]
            if step != MARKED or number_of(token) > self.server.marks.get(writer, -1):
                self.server.marks[writer] = number_of(token)
                self.server.take(step, taken)
            self.server.committed.setdefault(self.step, set()).add(token)

    def abort(self, token: str) -> None:
        with self.world.driver_step():
            self.server.staged.get(self.step, {}).pop(token, None)

    def prepared(self) -> list[str]:
        return list(self.server.staged.get(self.step, {}))

    def forget(self) -> None:
        with self.world.driver_step():
            self.server.staged.pop(self.step, None)
            self.server.committed.pop(self.step, None)

    def close(self) -> None:
        pass


class StagedEngine:
    """Engine with injected deaths of tasks and drivers.

    ``attempts``: for each partition, the end of each attempt: ``dies`` before it has staged; ``staged``: abandoned or
    killed after that; ``late``: the same, and it resumes after its run is over. A last attempt reports. ``deaths``:
    number of steps after which each driver dies; later drivers survive.
    """

    def __init__(self, attempts: list[list[str]], deaths: list[int], folder: Path) -> None:
        self.attempts, self.deaths, self.url = attempts, deaths, str(folder / "out")
        self.server = MemoryServer()
        self.driver = 0  # its process
        self.left = LIVES
        self.late: list[Any] = []
        self.woke = False  # a late attempt has resumed
        self._attempt = 0
        sink = ServerSink("memory", ("n",), ())
        outputs = tuple(Output(step, sink, ()) for step in STEPS)
        self.plan = Plan(PROGRAM, (), (), outputs)
        self.expected = {step: Counter((n,) for n in range(3 * len(attempts))) for step in STEPS}

    @property
    def place(self) -> Place:
        """Return the place of the result."""
        return Place(None, self.url)

    @contextmanager
    def driver_step(self) -> Iterator[None]:
        """Run a step of the driver, which may die before or after it."""
        self.tick()
        yield
        self.tick()

    def tick(self) -> None:
        """Count a step. Raises Died."""
        self.left -= 1
        if self.left <= 0:
            raise Died

    def check(self) -> None:
        """Check that nothing is visible before there is a result, and nothing is visible twice."""
        for step in STEPS:
            assert self.server.seen[step] <= self.expected[step], "seen twice"
        assert Path(self.url).exists() or not any(self.server.seen.values()), "seen without a result"

    def command(self) -> str:
        """Run ``heron submit spark`` with a new driver: ``died``, ``written``, ``settled`` or ``refused``."""
        self.driver += 1
        self._attempt = 0  # Spark starts again
        self.left = self.deaths.pop(0) if self.deaths else LIVES
        try:
            return self._command()
        except OutputExists:
            return "refused"
        except Died:
            return "died"
        except ConnectError as error:
            raise AssertionError(f"the server has nothing against it: {error}") from error
        finally:
            self.check()

    def _command(self) -> str:
        if settle_for(self.place, PROGRAM):
            return "settled"
        staging = Staging(PROGRAM, self.plan.outputs, bool)
        with (
            OutputFolder(None, self.url, clear=partial(clear_journal, out=pytest.fail)) as folder,
            staging.into(folder, pytest.fail),
        ):
            parts = [[{"n": 3 * part + place} for place in range(3)] for part in range(len(self.attempts))]
            reports = {output.step: self.tasks(output, staging.journal, parts) for output in self.plan.outputs}
            self.check()
            folder.commit({"program": PROGRAM} | staging.counted(reports))
        settle(folder.place)
        return "written"

    def tasks(self, output: Output, journal: Any, parts: list[list[dict[str, Any]]]) -> list[Report]:
        """Run all partitions with their records; return the reports."""
        assert isinstance(output.sink, ServerSink)
        task, render, reports = StageTask(output.step, output.sink, journal), ToServer(output.sink), []
        for (partition, records), fates in zip(enumerate(parts), self.attempts, strict=False):
            payloads = [render(record) for record in records]
            batch = SimpleNamespace(column=lambda _, made=payloads: SimpleNamespace(to_pylist=lambda: made))
            for fate in (*fates, "reported"):
                self._attempt += 1
                stage = partial(task.staged, iter([batch]), partition, self._attempt)
                self.tick()
                if fate == "late":
                    self.late.append(stage)
                elif fate != "dies":
                    report = stage()
                    reports += [report] if fate == "reported" and report is not None else []
        return reports

    def wake(self) -> None:
        """Let abandoned attempts stage now."""
        self.woke = self.woke or bool(self.late)
        for stage in self.late:
            stage()
        self.late.clear()


Made = TypeVar("Made", bound=StagedEngine)


def stage_one(world: StagedEngine, journal: Any) -> None:
    """Stage a record by an attempt of the first sink."""
    output = world.plan.outputs[0]
    assert isinstance(output.sink, ServerSink)
    payloads = [ToServer(output.sink)({"n": 0})]
    batch = SimpleNamespace(column=lambda _: SimpleNamespace(to_pylist=lambda: payloads))
    assert StageTask(output.step, output.sink, journal).staged(iter([batch]), 0, 1) == Report(
        0, f"0-1-0-{journal.run}", 1
    )


@contextmanager
def staged_engine(attempts: list[list[str]], deaths: list[int], kind: type[Made] = StagedEngine) -> Iterator[Made]:
    """Yield an engine whose connector is registered and whose driver may die in every step of the files."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        made = kind(attempts, deaths, Path(folder))
        MemorySink.world = made
        patch.setitem(server_sinks.SINKS, "memory", f"{__name__}:MemorySink")
        host = socket.gethostname()
        patch.setattr(output, "_work_name", lambda name: f".{name}.{host}.{10**7 + made.driver}.tmp")
        patch.setattr(output, "_lives", lambda pid: pid == 10**7 + made.driver)  # not the number of a real process
        for name in FILE_STEPS:
            patch.setattr(output._Local, name, _stepped(made, getattr(output._Local, name)))
        yield made


def _stepped(world: StagedEngine, method: Any) -> Any:
    def stepped(*args: Any, **more: Any) -> Any:
        with world.driver_step():
            return method(*args, **more)

    return stepped
