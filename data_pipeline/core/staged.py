"""Which of the records that tasks have staged in servers count, and what is still to be done for them. Pure.

::

    journal   before the first task: the run, and where it will stage; beside the files that are not yet a result
    staged    a task has its records in the server under the token of its attempt, and nobody sees them
    counted   the result has its name, by one rename; the manifest in it names the attempts that count
    settled   the server has been told of each of them, and of the others that they never were

Theory of operation. The rename decides. Before it nothing counts: who finds a journal whose driver has gone throws away
all that stands in it. Behind it the attempts that the manifest names are *owed*: whoever comes has the server commit
them, which may be asked twice, then has it throw away the attempts that lost, then marks the result as settled, and
last has it forget the run. What tells the server that a token was committed must be there until the mark is: a driver
that dies in between leaves it to the next to ask again. No step is taken back, and each may come again.

Of a partition one attempt counts: the one whose report Spark has given the driver. Others may have staged the same
records: one that was given up, or whose report was lost, or that ran at the same time.

A micro-batch is such a run, too, and its portion (``portions.py``) such a result. All micro-batches of a stream sign
what they commit with one name, and their tokens have numbers that go up from one to the next, so that what a system
keeps of each writer for ever (the marks in tables of lakes, Kafka's producers) does not grow with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NamedTuple

from heronry.connect.seats import Seat
from heronry.connect.settings import step_name_of

JOURNAL = "_staged.json"  # in the folder that is not yet a result
SETTLED = "_settled"  # in the result
STAGED = "staged"  # in its manifest
FORMAT = 1
ATTEMPT_BITS = 32  # of a token's number; above them is that of the micro-batch


class Report(NamedTuple):
    """What a task says when its records are safe."""

    partition: int
    token: str
    records: int


@dataclass(frozen=True)
class Journal:
    """A run of a program, and the sinks it stages in, by step: as they are declared, in plain values. ``stream``: that
    of which it is the micro-batch ``number``; empty for a batch."""

    program: str
    run: str
    sinks: Mapping[str, Mapping[str, Any]]
    stream: str = ""
    number: int = 0

    def to_json(self) -> dict[str, Any]:
        """As it stands in its file."""
        about = {"format": FORMAT, "program": self.program, "run": self.run}
        about |= {"stream": self.stream, "number": self.number} if self.stream else {}
        return about | {"sinks": {step: dict(sink) for step, sink in self.sinks.items()}}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Journal:
        """Raises ValueError for what a later version has written."""
        if found.get("format") != FORMAT:
            raise ValueError(f"its format is {found.get('format')!r}, and this version knows {FORMAT}")
        of_stream = found.get("stream", ""), found.get("number", 0)
        return cls(found["program"], found["run"], found["sinks"], *of_stream)


@dataclass(frozen=True)
class Counted:
    """Of a journal, the tokens that count: by step, in the order in which they are committed."""

    journal: Journal
    tokens: Mapping[str, tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        """As it stands in the manifest."""
        return {**self.journal.to_json(), "tokens": {step: list(tokens) for step, tokens in self.tokens.items()}}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Counted:
        """Raises ValueError for what a later version has written."""
        return cls(Journal.from_json(found), {step: tuple(tokens) for step, tokens in found["tokens"].items()})


class Standing(Enum):
    """Of what is at the place of a result."""

    OTHER = "nothing was staged for it, or it is no result"
    OWED = "commits are owed"
    SETTLED = "all is done"


class Act(NamedTuple):
    """What is to be done next. ``settled`` concerns the result, the others a server; ``forget`` is of a whole run."""

    kind: Literal["commit", "throw_away", "settled", "forget"]
    step: str = ""
    token: str = ""


def token_of(journal: Journal, attempt: int) -> str:
    """Under which an attempt stages: safe in file names, of the shape that connectors know (generation, number, task,
    who). ``attempt`` is unique in the run; of several that are committed, the numbers increase, also from one
    micro-batch to the next."""
    return f"0-{journal.number << ATTEMPT_BITS | attempt}-0-{journal.run}"


def number_of(token: str) -> int:
    """The attempt, behind the micro-batch."""
    return int(token.split("-")[1])


def seat_of(journal: Journal, step: str, task: int = 0) -> Seat:
    """That of whoever writes for a run: its step is the run's own, and no topology's."""
    writer = step_name_of(journal.program, f"{step}@{journal.stream}") if journal.stream else ""
    return Seat(step_name_of(journal.program, f"{step}@{journal.run}"), task, journal.run, writer=writer)


def counted(journal: Journal, reports: Mapping[str, Iterable[Report]]) -> Counted:
    """The attempts that count, of the reports that Spark has given the driver. Raises ValueError if it has given two
    of one partition."""
    tokens = {}
    for step in journal.sinks:
        found = list(reports[step])
        if len({report.partition for report in found}) < len(found):
            raise ValueError(f"step {step!r}: two attempts of one partition were reported")
        tokens[step] = tuple(sorted((report.token for report in found), key=number_of))
    return Counted(journal, tokens)


def standing(manifest: Mapping[str, Any] | None, marked: bool) -> Standing:
    """Of a result with this manifest. ``marked``: it has the mark ``SETTLED``."""
    if manifest is None or STAGED not in manifest:
        return Standing.OTHER
    return Standing.SETTLED if marked else Standing.OWED


def behind_the_rename(found: Counted, waiting: Mapping[str, Iterable[str]]) -> Iterator[Act]:
    """What is owed, in order. ``waiting``: by step, the tokens of the run that wait in its server."""
    for step, tokens in found.tokens.items():
        yield from (Act("commit", step, token) for token in tokens)
    for step, tokens in found.tokens.items():
        yield from (Act("throw_away", step, token) for token in waiting[step] if token not in tokens)
    yield Act("settled")
    yield from (Act("forget", step) for step in found.tokens)


def before_the_rename(journal: Journal) -> Iterator[Act]:
    """What a run leaves behind that ended without a result."""
    yield from (Act("forget", step) for step in journal.sinks)
