"""What a command can end with: one exception for each exit code; every error of Heronry carries its own.

A failure has a message (what is wrong), perhaps a cure (what to do) and details (a traceback of the user's code, the
last lines of a log). No Python traceback is shown unless ``--verbose`` asks for it. The errors of other parts derive
from the kind that they are; ``heron_runtime.net.foreign`` says what those mean that are not ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class Failure(Exception):
    """Something failed, and the user is told."""

    exit_code = 1
    cure = ""
    details: tuple[str, ...] = ()

    def __init__(self, message: str = "", cure: str = "", details: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.cure = cure or self.cure
        self.details = tuple(details) or self.details

    @property
    def message(self) -> str:
        """What is wrong."""
        return str(self)


class UsageError(Failure):
    """The command line or the request makes no sense."""

    exit_code = 2


class NotFound(Failure):
    """What was named is not there."""

    exit_code = 3


class ExistsAlready(Failure):
    """The name is in use."""

    exit_code = 4


class NotAllowed(Failure):
    """The operating system or the cluster forbids it."""

    exit_code = 5


class Unavailable(Failure):
    """Something that has to answer does not, or not in time."""

    exit_code = 6


class InvalidTopology(Failure):
    """The topology, its code or its package cannot be run."""

    exit_code = 7


class Interrupted(Failure):
    """Ctrl-C; the message says what was done and what not."""

    exit_code = 130


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` with the known word most like it (case aside), or nothing when none is near."""
    by_folded = {name.casefold(): name for name in known}
    found = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return f"; did you mean {by_folded[found[0]]!r}?" if found else ""


def listing(names: Iterable[str], limit: int = 12) -> str:
    """``'a', 'b', 'c'``, cut after ``limit`` names; ``none`` for no names."""
    quoted = [repr(name) for name in names]
    more = f" and {len(quoted) - limit} more" if len(quoted) > limit else ""
    return (", ".join(quoted[:limit]) + more) or "none"
