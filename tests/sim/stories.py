"""Stories: text files of commands, each followed by its outcome, in the manner of etcd's data-driven tests.

A story file consists of blocks of a command line, ``----`` and the output, separated by empty lines; ``#`` begins a
comment. ``HERONRY_REWRITE_STORIES=1`` records the outputs again: commit only differences you understand.

    topology chain|diamond [containers=2] [timeout=2] [masters=1] [pad=1] [par=1]   build and start it
    emit N                      N more messages at each spout task
    advance 3s | 500ms          let time pass
    break sm1-sm2               the link breaks
    crash NAME [AFTER]          kill -9; restarted after a while (default 200ms)
    pause NAME 5s               SIGSTOP, SIGCONT
    store NAME 2s               the store does not respond to this master
    slow TASK 100ms | hold TASK | release TASK | fail TASK N
    ask paused|running          deactivate, activate
    expect acked=N failed=N …   fail unless these numbers are right
    show                        print the state of everything
    rest                        end all faults; everything must come to rest
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heron_runtime.model.topology import (
    ComponentKind,
    ComponentSpec,
    GroupingKind,
    GroupingSpec,
    InputSpec,
    StreamSchema,
    TopologyDefinition,
    TopologyState,
)

from .cluster import Cluster
from .programs import FIELDS, Habits, Program, pack
from .schedule import come_to_rest
from .simulation import SimProcess, Simulation

SHOWN = re.compile(
    r"dies|starts, life ([2-9]|\d\d)|leads|stepping down|does not answer|is stopped|goes on|pauses|not paused|link ends"
    r"|silent for its lease|physical plan|told to leave"
)
STARTING_MS = 3000.0


class StoryError(Exception):
    """Error in the story itself, or an expectation that does not hold."""


def story_program(shape: str, containers: int, timeout: int, pad: int, par: int) -> Program:
    """Return a small fixed topology: a chain of two bolts, or a diamond whose two arms meet in a join."""
    out = (StreamSchema("default", FIELDS),)
    fields, shuffle = GroupingSpec(GroupingKind.FIELDS, ("key",)), GroupingSpec(GroupingKind.SHUFFLE)

    def bolt(name: str, *sources: str, last: bool = False) -> ComponentSpec:
        inputs = tuple(InputSpec(s, "default", fields if last else shuffle) for s in sources)
        tick = {"topology.tick.tuple.freq.ms": 50}  # on a tick a bolt acks what it holds, unless told to hold
        return ComponentSpec(name, ComponentKind.BOLT, "sim:Bolt", par, () if last else out, inputs, tick)

    spout = ComponentSpec("spout", ComponentKind.SPOUT, "sim:Spout", 1, out)
    shapes = {
        "chain": (spout, bolt("split", "spout"), bolt("count", "split", last=True)),
        "diamond": (spout, bolt("left", "spout"), bolt("right", "spout"), bolt("join", "left", "right", last=True)),
    }
    if shape not in shapes:
        raise StoryError(f"no topology {shape!r}; there are {', '.join(shapes)}")
    config: dict[str, Any] = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        "topology.message.timeout.secs": timeout,
    }
    topology = TopologyDefinition(shape, f"{shape}-1", shapes[shape], config)
    habits = {c.name: Habits() for c in shapes[shape] if not c.is_spout}
    return Program(topology, pack(topology, containers), habits, 0, 0.0, pad, calm=True)


class Story:
    """Interpreter of commands."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None
        self._lines: list[str] = []
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "topology": self._topology, "emit": self._emit, "advance": self._advance, "break": self._break,
            "crash": self._crash, "pause": self._pause, "store": self._store, "slow": self._slow, "hold": self._hold,
            "release": self._release, "fail": self._fail, "ask": self._ask, "expect": self._expect, "show": self._show,
            "rest": self._rest,
        }  # fmt: skip

    def run(self, command: str) -> str:
        """Run a command; return its outcome. Raises StoryError, Violation."""
        name, *arguments = command.split()
        if name not in self._commands:
            raise StoryError(f"no command {name!r}; there are {', '.join(self._commands)}")
        self._lines = []
        self._commands[name](arguments)
        return "\n".join(self._lines) or "ok"

    @property
    def cluster(self) -> Cluster:
        """Return the cluster of this story. Raises StoryError before there is one."""
        if self._cluster is None:
            raise StoryError("begin with: topology chain")
        return self._cluster

    def _listen(self, line: str) -> None:
        if SHOWN.search(line):
            who, _, text = line[11:].partition(" ")
            self._lines.append(f"{who}: {text.strip()}")

    def _process(self, name: str) -> Any:
        for process in self.cluster.processes():
            if process.name == name:
                return process
        raise StoryError(f"no process {name!r}; there are {', '.join(p.name for p in self.cluster.processes())}")

    # The commands.

    def _topology(self, arguments: list[str]) -> None:
        options = {"containers": 2, "timeout": 2, "masters": 1, "pad": 1, "par": 1, "seed": 1}
        for argument in arguments[1:]:
            name, _, value = argument.partition("=")
            if name not in options:
                raise StoryError(f"no option {name!r}; there are {', '.join(options)}")
            options[name] = int(value)
        program = story_program(arguments[0], options["containers"], options["timeout"], options["pad"], options["par"])
        cluster = self._cluster = Cluster(Simulation(options["seed"], self._listen), program, options["masters"])
        cluster.start()
        self._run_for(STARTING_MS)
        for plan in program.packing.containers:
            tasks = ", ".join(f"task{i.task} {i.component}" for i in plan.instances)
            self._lines.append(f"container {plan.container}: {tasks}")

    def _run_for(self, duration_ms: float) -> None:
        self.cluster.world.run_until(self.cluster.world.now_ms + duration_ms)

    def _emit(self, arguments: list[str]) -> None:
        for source in self.cluster.sources.values():
            source.add(int(arguments[0]), self.cluster.world.now_ms)

    def _advance(self, arguments: list[str]) -> None:
        self._run_for(milliseconds(arguments[0]))

    def _break(self, arguments: list[str]) -> None:
        wanted = set(arguments[0].split("-"))
        found = [c for c in self.cluster.network.channels if {e.process.name for e in c.ends} == wanted]
        if not found:
            raise StoryError(f"there is no link {arguments[0]}")
        for channel in found:
            channel.cut("broken")
        self.cluster.checkers.fault()

    def _crash(self, arguments: list[str]) -> None:
        process: SimProcess = self._process(arguments[0])
        process.crash("killed", milliseconds(arguments[1]) if len(arguments) > 1 else 200.0)

    def _pause(self, arguments: list[str]) -> None:
        self._process(arguments[0]).pause(milliseconds(arguments[1]))
        self.cluster.checkers.fault()

    def _store(self, arguments: list[str]) -> None:
        self._process(arguments[0]).lose_store(milliseconds(arguments[1]))

    def _slow(self, arguments: list[str]) -> None:
        self.cluster.program.slow_ms[self._process(arguments[0]).task] = milliseconds(arguments[1])

    def _hold(self, arguments: list[str]) -> None:
        self.cluster.program.hold_tasks.add(self._process(arguments[0]).task)

    def _release(self, arguments: list[str]) -> None:
        self.cluster.program.hold_tasks.discard(self._process(arguments[0]).task)

    def _fail(self, arguments: list[str]) -> None:
        self.cluster.program.fail_next[self._process(arguments[0]).task] = int(arguments[1])

    def _ask(self, arguments: list[str]) -> None:
        self.cluster.ask(TopologyState(arguments[0]))

    def _rest(self, arguments: list[str]) -> None:
        self.cluster.heal()
        come_to_rest(self.cluster)

    def state(self) -> dict[str, Any]:
        """Return the numbers that ``expect`` and ``show`` use."""
        cluster = self.cluster
        oracle = cluster.oracle
        spouts: list[Any] = [i for i in cluster.instances.values() if i.is_spout]
        managers = [m for m in cluster.stream_managers.values() if m.alive]
        causes = sorted({str(cause) for m in managers for cause in m.core.causes.own})
        leaders = [f"{m.name} epoch {m.core.mastership.epoch}" for m in cluster.masters if m.leading]
        return {
            "acked": oracle.acked,
            "failed": oracle.failed,
            "abandoned": oracle.abandoned,
            "open": len(oracle.open_roots()),
            "paused": sum(s.paused_by_pressure for s in spouts),
            "lost": sum(sum(link.lost.values()) for m in managers for link in {k for k, *_ in m.pipes}),
            "causes": "; ".join(causes) or "none",
            "leader": ", ".join(leaders) or "none",
            "plans": ", ".join(sorted({str(m.core.version) for m in managers})),
        }

    def _show(self, arguments: list[str]) -> None:
        self._lines += [f"{name}: {value}" for name, value in self.state().items()]

    def _expect(self, arguments: list[str]) -> None:
        state = self.state()
        for argument in arguments:
            name, _, wanted = argument.partition("=")
            if name not in state:
                raise StoryError(f"expect knows {', '.join(state)}, not {name!r}")
            if str(state[name]) != wanted:
                raise StoryError(f"expected {name}={wanted}, it is {state[name]}")


def milliseconds(text: str) -> float:
    """Parse ``3s`` or ``500ms`` to milliseconds."""
    match = re.fullmatch(r"(\d+)(ms|s)", text)
    if match is None:
        raise StoryError(f"{text!r} is no duration; write 3s or 500ms")
    return float(match[1]) * (1000 if match[2] == "s" else 1)


def play(path: Path) -> str:
    """Return the text of a story with its current outcomes. Raises StoryError, Violation."""
    story = Story()
    blocks = []
    for block in path.read_text().strip().split("\n\n"):
        lines = block.split("\n----")[0].split("\n")
        commands = [line for line in lines if line and not line.startswith("#")]
        outputs = [story.run(command) for command in commands]
        text = "\n".join(lines)
        blocks.append(text + "\n----\n" + "\n".join(outputs) if commands else text)
    return "\n\n".join(blocks) + "\n"
