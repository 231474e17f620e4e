"""Errors in topologies, their files and packages. Messages name cause and remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from heron_runtime.failures import InvalidTopology, NotFound, did_you_mean, listing, one_line, screenful


class TopologyError(InvalidTopology, ValueError):
    """An invalid topology. ``problems`` has all problems, one or two sentences each.

    ``heading`` says what is at fault, where that is not simply the topology of this name.
    """

    def __init__(self, problems: str | Sequence[str], topology: str = "", heading: str = "") -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        self.topology = topology
        self.heading = heading or (f"topology {topology!r}" if topology else "topology")
        super().__init__(_compose(self.problems, self.heading))


class ConfigError(TopologyError):
    """An invalid configuration key or value. ``where`` names the owner of the configuration."""

    def __init__(self, problems: str | Sequence[str], where: str = "config") -> None:
        self.where = where
        super().__init__(problems, heading=where)


class TopologyNotFound(NotFound, LookupError):
    """A missing file, or a missing topology in it. The message lists the existing ones."""


class UserCodeError(InvalidTopology, RuntimeError):
    """The user's own code raised, exited or hung while it was asked for its topology.

    ``traceback`` holds the frames of the user's code only; ``output`` the end of what it printed: a screen of each.
    """

    def __init__(self, message: str, traceback: str = "", output: str = "") -> None:
        self.traceback = screenful(traceback)
        self.output = screenful(output)
        super().__init__(one_line(message, 1000), details=filter(None, (self.output.rstrip(), self.traceback.rstrip())))


class PackageError(InvalidTopology, ValueError):
    """An invalid package: unsafe, damaged, too large, or with requirements that cannot be installed."""


def topology_not_found(name: str, cluster: str, known: Iterable[str], variables: Mapping[str, str]) -> NotFound:
    """Return the error for an unknown topology, with the nearest name as a proposal.

    Args:
        name: The unknown name.
        cluster: The cluster that was searched.
        known: Names of its topologies.
        variables: Topology to the variable of the program that it runs. If ``name`` is such a variable, the message
            names the topologies instead.
    """
    runs = sorted(topology for topology, variable in variables.items() if variable == name)
    hint = f"; the program in the variable {name!r} runs as {listing(runs)}" if runs else did_you_mean(name, known)
    return NotFound(f"unknown topology {name!r} in {cluster}{hint}", f"See `heron list {cluster}`.")


def _compose(problems: tuple[str, ...], whose: str) -> str:
    if len(problems) == 1:
        return f"{whose}: {problems[0]}"
    lines = [f"{whose} is not valid, {len(problems)} problems:"]
    lines += [f"  {number}. {problem}" for number, problem in enumerate(problems, 1)]
    return "\n".join(lines)
