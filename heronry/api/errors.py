"""What can be wrong with a topology, its file or its package. Every message names the cause and the cure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class TopologyError(ValueError):
    """The topology is not valid. ``problems`` holds every fault found, one sentence or two each.

    ``heading`` says what is at fault, where that is not simply the topology of this name.
    """

    def __init__(self, problems: str | Sequence[str], topology: str = "", heading: str = "") -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        self.topology = topology
        self.heading = heading or (f"topology {topology!r}" if topology else "topology")
        super().__init__(_compose(self.problems, self.heading))


class ConfigError(TopologyError):
    """A configuration key or value is refused. ``where`` says whose configuration it is."""

    def __init__(self, problems: str | Sequence[str], where: str = "config") -> None:
        self.where = where
        super().__init__(problems, heading=where)


class TopologyNotFound(LookupError):
    """The file, or the topology in it, is not there. The message lists what is."""


class UserCodeError(RuntimeError):
    """The user's own code raised, exited or hung while it was asked for its topology.

    ``traceback`` holds the frames of the user's code only; ``output`` the end of what it printed.
    """

    def __init__(self, message: str, traceback: str = "", output: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback
        self.output = output


class PackageError(ValueError):
    """The user's package is refused: unsafe, damaged, too large, or its requirements cannot be installed."""


def _compose(problems: tuple[str, ...], whose: str) -> str:
    if len(problems) == 1:
        return f"{whose}: {problems[0]}"
    lines = [f"{whose} is not valid, {len(problems)} problems:"]
    lines += [f"  {number}. {problem}" for number, problem in enumerate(problems, 1)]
    return "\n".join(lines)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like ``word`` (case aside), or None when nothing is near."""
    by_folded = {name.casefold(): name for name in known}
    found = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` or nothing."""
    found = nearest(word, known)
    return f"; did you mean {found!r}?" if found is not None else ""


def listing(names: Iterable[str], limit: int = 12) -> str:
    """``'a', 'b', 'c'``, cut after ``limit`` names; ``none`` for no names."""
    quoted = [repr(name) for name in names]
    more = f" and {len(quoted) - limit} more" if len(quoted) > limit else ""
    return (", ".join(quoted[:limit]) + more) or "none"
