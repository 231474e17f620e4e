"""Server sinks on Spark: tasks stage, the rename of the result decides, the driver settles (``core/staged.py``).

A task opens the connector of the sink under a step name of the run (``PROGRAM.STEP@RUN``), so that no topology or other
run takes over the staged records. It passes its records to the connector, prepares them under the token of the attempt,
and sends the token to the driver. The driver writes the received tokens into the manifest, renames the folder, and
commits by the same connector. If a driver dies after the rename, any later driver that finds the result without its
mark completes the remaining steps. Passwords are in files that tasks and driver read; the journal and manifest contain
only the program's declarations.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from data_pipeline.core import staged
from data_pipeline.core.plan import Output
from data_pipeline.core.staged import Counted, Journal, Report, Standing, seat_of
from data_pipeline.shell.output import MANIFEST, OutputExists, OutputFolder, Place
from data_pipeline.shell.tasks import REPORT_SCHEMA, Shipped, StageTask
from heron_runtime.failures import Interrupted
from heronry.connect.seats import SeatedSink
from heronry.connect.settings import BadConfig, ConnectError
from heronry.streamlet.server_sinks import ServerSink

RUN_BYTES = 8
AGAIN = "The same command, typed again, commits them first"
TASKS_SECS = 20.0  # Spark gives a cancelled worker two seconds


class Staging:
    """Staging of one run; it has no effect without sinks in servers. ``at_work`` returns True while tasks still run."""

    def __init__(
        self, program: str, outputs: Sequence[Output], at_work: Callable[[], bool], stream: str = "", number: int = 0
    ) -> None:
        """Check the destinations.

        ``stream`` and ``number`` identify a micro-batch.

        Raises:
            ConnectError: A server cannot be reached.
            BadConfig: A sink has invalid settings.
        """
        self._at_work = at_work
        self._sinks = {output.step: output.sink for output in outputs if isinstance(output.sink, ServerSink)}
        plain = {step: _plain(sink) for step, sink in self._sinks.items()}
        self.journal = Journal(program, secrets.token_hex(RUN_BYTES), plain, stream, number)
        with _servers(self.journal):
            pass  # report an invalid table before Spark has done any work

    def frame(self, output: Output, rows: DataFrame) -> DataFrame:
        """Return the reports of a sink's tasks, which stage the rows."""
        task = StageTask(output.step, self._sinks[output.step], self.journal)
        return rows.select("data").mapInArrow(Shipped(task), REPORT_SCHEMA)

    @contextlib.contextmanager
    def into(self, folder: OutputFolder, out: Callable[[str], None]) -> Iterator[None]:
        """Write the journal, and clean up if the block fails before the rename.

        The block stages records and names the folder at its end. If it fails, the staged records of this run are
        discarded. If a server cannot be reached for that, the work folder is kept for the next run to do it.
        """
        if self._sinks:
            folder.write(staged.JOURNAL, json.dumps(self.journal.to_json()).encode())
        try:
            yield
        except BaseException:
            if self._sinks and not self._counts(folder.place):
                self._wait_for_tasks()
                folder.keep = not clear(self.journal, out)
            raise

    def _wait_for_tasks(self) -> None:
        """Wait for cancelled tasks, which end a little later and may stage records until then."""
        until = time.monotonic() + TASKS_SECS
        while self._at_work() and time.monotonic() < until:
            time.sleep(0.05)

    def _counts(self, place: Place) -> bool:
        """Return True if the result has been renamed, so that the failure occurred after it."""
        manifest = manifest_of(place) or {}
        return bool(manifest.get(staged.STAGED, {}).get("run") == self.journal.run)

    def counted(self, reports: Mapping[str, list[Report]]) -> dict[str, Any]:
        """Return the entry for the manifest."""
        return {staged.STAGED: staged.counted(self.journal, reports).to_json()} if self._sinks else {}


def tasks_run(spark: SparkSession) -> bool:
    """Return True while an executor runs any task, cancelled or not."""
    tracker: Any = spark.sparkContext._jsc
    with contextlib.suppress(Py4JError, OSError):  # the JVM may have ended
        return any(executor.numRunningTasks() for executor in tracker.sc().statusTracker().getExecutorInfos())
    return False


def reports_of(frame: DataFrame) -> list[Report]:
    """Run the tasks, and return the reports that count."""
    return [Report(*row) for row in frame.collect()]


def is_owed(place: Place) -> bool:
    """Return True for a result whose commits are still owed."""
    return staged.standing(manifest_of(place), _is_marked(place)) is Standing.OWED


def settle(place: Place) -> list[str]:
    """Complete the commits that the result still owes, and return their steps.

    Raises:
        ConnectError: A server cannot be reached; the commits are still owed.
        Interrupted: The user interrupted the commits; they are still owed.
    """
    counted = _counted(place)
    if counted is None:
        return []
    try:
        with _servers(counted.journal) as servers:
            waiting = {step: list(server.prepared()) for step, server in servers.items()}
            acts = staged.behind_the_rename(counted, waiting)
            for (kind, step), those in groupby(acts, attrgetter("kind", "step")):
                if kind == "settled":
                    place.write(staged.SETTLED, b"")
                elif kind == "commit":
                    with _naming_step(step):
                        servers[step].commit_all([act.token for act in those])
                else:
                    for act in those:
                        _do(act, servers[step])
    except ConnectError as error:
        if not _is_marked(place):  # if it is marked, another process settled it and the server has forgotten the run
            raise ConnectError(f"{error}. {_still_owed(place)}: {AGAIN}") from None
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted: {_still_owed(place)}", f"{AGAIN}.") from None
    return list(counted.tokens)


def _still_owed(place: Place) -> str:
    return f"{place.url} has its name, and records in servers are still owed to it"


def settle_for(place: Place, program: str) -> str:
    """Complete the commits before the program runs, and return the text to print if there were any.

    Raises:
        OutputExists: The result belongs to another program.
        ConnectError: A server cannot be reached.
    """
    counted = _counted(place)
    if counted is None:
        return ""
    if counted.journal.program != program:
        raise OutputExists(place.url)
    return owed(place.url, settle(place))


def owed(what: str, steps: Sequence[str]) -> str:
    """Return a message that commits were owed."""
    return (
        f"{what} was there, and a driver that died still owed its records in servers: {', '.join(steps)} committed now"
    )


def clear_journal(content: bytes, out: Callable[[str], None]) -> bool:
    """Discard the staged records of a journal that a driver has left; return False if that could not be done yet.

    An unreadable journal is reported on ``out`` and counts as done.
    """
    try:
        return clear(Journal.from_json(json.loads(content)), out)
    except (ValueError, KeyError) as error:
        out(f"a run that died has left a journal that cannot be read ({error}); what it staged is still there")
        return True


def clear(journal: Journal, out: Callable[[str], None]) -> bool:
    """Discard the staged records of a run without a result.

    Returns:
        False, with the reason on ``out``, if a server cannot be reached.
    """
    try:
        with _servers(journal) as servers:
            for act in staged.before_the_rename(journal):
                _do(act, servers[act.step])
    except (ConnectError, BadConfig) as error:
        out(f"what a run without a result has staged is thrown away by the next run, not now: {error}")
        return False
    return True


def _do(act: staged.Act, server: SeatedSink) -> None:
    with _naming_step(act.step):
        if act.kind == "throw_away":
            server.abort(act.token)
        else:
            server.forget()


@contextlib.contextmanager
def _servers(journal: Journal) -> Iterator[dict[str, SeatedSink]]:
    """Provide the driver's connectors by step. Raises ConnectError or BadConfig."""
    with contextlib.ExitStack() as stack:
        servers = {}
        for step, plain in journal.sinks.items():
            with _naming_step(step):
                servers[step] = _sink(plain).open(seat_of(journal, step))
            stack.callback(servers[step].close)
        yield servers


@contextlib.contextmanager
def _naming_step(step: str) -> Iterator[None]:
    try:
        yield
    except ConnectError as error:
        raise ConnectError(f"step {step!r}: {error}") from None


def _counted(place: Place) -> Counted | None:
    """Return the tokens of a result that owes commits; None for any other."""
    manifest = manifest_of(place)
    if manifest is None or staged.standing(manifest, _is_marked(place)) is not Standing.OWED:
        return None
    return Counted.from_json(manifest[staged.STAGED])


def manifest_of(place: Place) -> Mapping[str, Any] | None:
    """Return the manifest of the result; None if it is missing or unreadable."""
    content = place.read(MANIFEST)
    try:
        manifest = json.loads(content) if content is not None else None
    except ValueError:
        return None
    return manifest if isinstance(manifest, dict) else None


def _is_marked(place: Place) -> bool:
    return place.read(staged.SETTLED) is not None


def _plain(sink: ServerSink) -> dict[str, Any]:
    return {"system": sink.system, "fields": list(sink.fields), "settings": [list(pair) for pair in sink.settings]}


def _sink(plain: Mapping[str, Any]) -> ServerSink:
    """Return the sink from the result of ``_plain`` after a round trip through JSON."""
    pairs = ((key, _tuples(value)) for key, value in plain["settings"])
    return ServerSink(plain["system"], tuple(plain["fields"]), tuple(pairs))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
