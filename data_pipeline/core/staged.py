"""Staged records in servers: which of them count, and which steps towards a commit remain. Pure.

::

    journal   before the first task: the run and the sinks it stages in, next to the files of the unfinished result
    staged    the server holds a task's records under the token of its attempt; they are not visible
    counted   one rename has given the result its name; its manifest names the attempts that count
    settled   the server has committed these attempts, and has discarded all others

The rename decides. Before it, nothing counts: a process that finds a journal whose driver is gone discards all that
the journal lists. After it, the attempts that the manifest names are *owed*. Any process that finds the result then
tells the server to commit them (idempotent), to discard the attempts that lost, marks the result as settled, and
finally lets the server forget the run. The server's evidence that a token was committed must exist until the mark
does, so that after a driver's death the next one can ask again. No step is undone, and each step may be repeated.

Of each partition one attempt counts: the one whose report Spark has given to the driver. Others may have staged the
same records: an abandoned attempt, one whose report was lost, or one that ran concurrently.

A micro-batch is also such a run, and its portion (``portions.py``) such a result. All micro-batches of a stream commit
under one writer name, and the numbers in their tokens increase from one micro-batch to the next. State that a system
keeps for each writer indefinitely (marks in lake tables, Kafka producers) therefore does not grow with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NamedTuple

from heronry.connect.seats import Seat
from heronry.connect.settings import step_name_of

JOURNAL = "_staged.json"  # in the folder of the unfinished result
SETTLED = "_settled"  # in the result
STAGED = "staged"  # in its manifest
FORMAT = 1
ATTEMPT_BITS = 32  # low bits of a token's number; the bits above are the number of the micro-batch


class Report(NamedTuple):
    """Report of a task that its records are staged durably."""

    partition: int
    token: str
    records: int


@dataclass(frozen=True)
class Journal:
    """Run of a program, and the sinks it stages in: step to the sink's declaration in plain values.

    ``stream`` is the stream of which the run is micro-batch ``number``; empty for a batch.
    """

    program: str
    run: str
    sinks: Mapping[str, Mapping[str, Any]]
    stream: str = ""
    number: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the journal as the JSON object of its file."""
        about = {"format": FORMAT, "program": self.program, "run": self.run}
        about |= {"stream": self.stream, "number": self.number} if self.stream else {}
        return about | {"sinks": {step: dict(sink) for step, sink in self.sinks.items()}}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Journal:
        """Read a journal from its JSON object. Raises ValueError if another version has written it."""
        if document.get("format") != FORMAT:
            raise ValueError(f"its format is {document.get('format')!r}, and this version knows {FORMAT}")
        of_stream = document.get("stream", ""), document.get("number", 0)
        return cls(document["program"], document["run"], document["sinks"], *of_stream)


@dataclass(frozen=True)
class Counted:
    """Tokens of a journal's run that count: by step, in the order of their commits."""

    journal: Journal
    tokens: Mapping[str, tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object for the manifest."""
        return {**self.journal.to_json(), "tokens": {step: list(tokens) for step, tokens in self.tokens.items()}}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Counted:
        """Read the object from the manifest. Raises ValueError if another version has written it."""
        return cls(Journal.from_json(document), {step: tuple(tokens) for step, tokens in document["tokens"].items()})


class Standing(Enum):
    """State of the commits of a result."""

    OTHER = "nothing was staged for it, or it is not a result"
    OWED = "commits are owed"
    SETTLED = "all is done"


class Act(NamedTuple):
    """Next step to take. ``settled`` concerns the result, the others a server; ``forget`` concerns a whole run."""

    kind: Literal["commit", "throw_away", "settled", "forget"]
    step: str = ""
    token: str = ""


def token_of(journal: Journal, attempt: int) -> str:
    """Return the token under which an attempt stages its records.

    The token is safe in file names and has the form that connectors expect (generation, number, task, writer).
    ``attempt`` must be unique in the run. Among the attempts that are committed the numbers increase, also across
    micro-batches.
    """
    return f"0-{journal.number << ATTEMPT_BITS | attempt}-0-{journal.run}"


def number_of(token: str) -> int:
    """Return the number in a token: the attempt, below the number of the micro-batch."""
    return int(token.split("-")[1])


def seat_of(journal: Journal, step: str, task: int = 0) -> Seat:
    """Return the seat of a writer of the run; its step name belongs to the run, not to a topology."""
    writer = step_name_of(journal.program, f"{step}@{journal.stream}") if journal.stream else ""
    return Seat(step_name_of(journal.program, f"{step}@{journal.run}"), task, journal.run, writer=writer)


def counted(journal: Journal, reports: Mapping[str, Iterable[Report]]) -> Counted:
    """Return the attempts that count, from the reports that Spark has given to the driver.

    Raises:
        ValueError: Two attempts of one partition were reported.
    """
    tokens = {}
    for step in journal.sinks:
        step_reports = list(reports[step])
        if len({report.partition for report in step_reports}) < len(step_reports):
            raise ValueError(f"step {step!r}: two attempts of one partition were reported")
        tokens[step] = tuple(sorted((report.token for report in step_reports), key=number_of))
    return Counted(journal, tokens)


def standing(manifest: Mapping[str, Any] | None, marked: bool) -> Standing:
    """Return the state of a result with this manifest. ``marked`` is True if it has the mark ``SETTLED``."""
    if manifest is None or STAGED not in manifest:
        return Standing.OTHER
    return Standing.SETTLED if marked else Standing.OWED


def behind_the_rename(counted: Counted, waiting: Mapping[str, Iterable[str]]) -> Iterator[Act]:
    """Yield the steps that are owed after the rename, in order.

    Args:
        counted: The tokens that count.
        waiting: Step to the tokens of the run that are still staged in its server.
    """
    for step, tokens in counted.tokens.items():
        yield from (Act("commit", step, token) for token in tokens)
    for step, tokens in counted.tokens.items():
        yield from (Act("throw_away", step, token) for token in waiting[step] if token not in tokens)
    yield Act("settled")
    yield from (Act("forget", step) for step in counted.tokens)


def before_the_rename(journal: Journal) -> Iterator[Act]:
    """Yield the steps that clean up after a run that ended without a result."""
    yield from (Act("forget", step) for step in journal.sinks)
