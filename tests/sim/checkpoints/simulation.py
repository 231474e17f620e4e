"""Simulation of one seed: processes, messages in flight, faults, and the oracle of each checkpoint."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from heron_instance.core.state.keyed_state import KeyedState
from heron_instance.core.state.snapshot import read_part
from heron_runtime.model.checkpoints import ALL_GROUPS, Manifest, StatePart, TaskReport, reading_plan
from heron_runtime.model.plan import Generation, GenerationPhase, task_participant
from heron_runtime.wire.checkpoint_formats import TASK_STATE
from topology_master.core.planner import initial_table

from .masters import Master, rescaled
from .outside import Outside, Plan, Storage, Store, Transaction, Violation
from .program import COUNT, EDGES, EVERYTHING, RELAY, SINK, SPOUT, reference
from .tasks import CODEC, Task

FAULTY_STEPS, QUIET_STEPS = 9_000, 60_000
KEPT = 3  # complete checkpoints


@dataclass
class Channel:
    """Channel from one task to another in one generation. A break loses the frames in flight."""

    generation: int
    source: int
    destination: int
    queue: deque[Any] = field(default_factory=deque)
    broken: bool = False


class CheckpointSimulation:
    """Checkpoint simulation, started with ``run``; the seed determines everything."""

    def __init__(self, seed: int, say: Callable[[str], None] | None = None, process: type[Task] = Task) -> None:
        self.draw = random.Random(seed)
        self.say = say
        self.process = process
        self.now = 0
        self.timeout = 2_200
        self.faulty = True
        self.counts: Counter[str] = Counter()
        draw = self.draw
        self.loss, self.double = draw.choice([0.0, 0.05, 0.2]), draw.choice([0.0, 0.1])
        self.late = draw.choice([0.0, 0.02, 0.08])
        self.fault_rate = draw.choice([0.001, 0.003, 0.006])
        self.local_rate = draw.choice([0.0, 0.01, 0.03])
        self.slow_store = draw.choice([0.03, 0.03, 0.004])
        self.commit_rate = draw.choice([0.4, 0.4, 0.02])
        tasks = {SPOUT: (1, 2), RELAY: (3, 4), COUNT: (5, 6), SINK: (7, 8)}
        table = initial_table(tasks[COUNT])
        self.store = Store(Plan(1, Generation(1, GenerationPhase.RESTORING), tasks, table))
        self.store.plans[1] = self.store.plan
        self.storage, self.outside = Storage(), Outside()
        self.complete: list[int] = [0]
        self.removed: set[int] = set()  # checkpoints removed because newer ones existed
        self.tasks: dict[int, Task] = {}
        self.everybody: list[Any] = []
        self.channels: dict[tuple[int, int, int], Channel] = {}
        self.ends: dict[tuple[int, int, int], dict[int, Task]] = {}
        self.mail: list[tuple[Any, tuple[Any, ...]]] = []
        self.late_mail: list[tuple[int, Any, tuple[Any, ...]]] = []
        self.transactions: list[tuple[Master, Transaction]] = []
        self.cuts: dict[str, tuple[Counter[int], Counter[int]]] = {}
        self.incarnations: Counter[int] = Counter()
        self.next_task = 9
        self._supervise()
        self._new_master()

    def log(self, text: str) -> None:
        if self.say is not None:
            self.say(f"{self.now:6} {text}")

    # Channels.

    def connect(self, task: Task, upstream: list[int], downstream: list[int], generation: int) -> None:
        for source, destination in [(u, task.task) for u in upstream] + [(task.task, d) for d in downstream]:
            key = (generation, source, destination)
            channel = self.channels.setdefault(key, Channel(generation, source, destination))
            ends = self.ends.setdefault(key, {})
            before = ends.get(task.task)
            if before is not None and before is not task:
                self._break(channel)  # another process of this task has used it: it is not opened again
            else:
                ends[task.task] = task

    def disconnect(self, task: Task) -> None:
        for key, ends in list(self.ends.items()):
            if ends.get(task.task) is task:
                self._break(self.channels[key])

    def _break(self, channel: Channel) -> None:
        channel.broken = True
        self.counts["frames lost"] += len(channel.queue)
        channel.queue.clear()

    def channel(self, source: int, destination: int, by: Task) -> Channel | None:
        assert by.participant is not None
        key = (by.participant.generation, source, destination)
        channel = self.channels.get(key)
        if channel is None or channel.broken or by not in self.ends[key].values():
            return None
        return channel

    def channels_to(self, task: Task) -> list[Channel]:
        assert task.participant is not None
        generation = task.participant.generation
        found = (self.channel(source, task.task, task) for source in task.upstream)
        return [channel for channel in found if channel is not None and channel.generation == generation]

    def _notice_breaks(self) -> None:
        for key, channel in list(self.channels.items()):
            if channel.broken:
                ends = self.ends[key]
                for number, task in list(ends.items()):
                    if task.dead or (task.stalled_until <= self.now and self.draw.random() < 0.3):
                        del ends[number]
                        if not task.dead:
                            task.notice_break(channel)
                if channel.generation < self.store.plan.generation.number and not ends:
                    del self.channels[key], self.ends[key]

    # Messages and writes.

    def post(self, sender: Any, to: Any, message: tuple[Any, ...]) -> None:
        if (getattr(sender, "cut_off", False) or getattr(to, "cut_off", False)) and self.draw.random() < 0.8:
            return
        if self.draw.random() < (self.loss if self.faulty else self.loss * 0.3):
            return
        if self.draw.random() < self.double:
            self.mail.append((to, message))
        if self.draw.random() < self.late:
            self.late_mail.append((self.now + self.draw.choice([150, 600, 3000]), to, message))
        else:
            self.mail.append((to, message))

    def tell_master(self, task: Task, report: TaskReport) -> None:
        masters = [m for m in self.everybody if isinstance(m, Master) and not m.dead]
        if masters:
            master = masters[-1] if self.draw.random() < 0.85 else self.draw.choice(masters)
            self.post(task, master, ("report", task, task.task, task.incarnation, task.epoch, report))

    def _deliver(self) -> None:
        place = self.draw.randrange(len(self.mail)) if self.draw.random() < 0.5 else 0
        to, message = self.mail.pop(place)
        if to.dead:
            return
        if to.stalled_until > self.now:
            self.mail.append((to, message))
        elif message[0] == "report":
            to.heard(*message[1:])
        elif message[0] == "wish":
            to.apply_command(*message[1:])
        elif message[0] == "leave":
            self.counts["told to leave"] += 1
            to.die()
        else:
            to.ended(*message[1:])

    def submit(self, master: Master, transaction: Transaction) -> None:
        self.transactions.append((master, transaction))

    def _apply(self) -> None:
        master, transaction = self.transactions.pop(self.draw.randrange(len(self.transactions)))
        before = self.store.record
        result = self.store.apply(transaction)
        if result == "done":
            if self.store.record.complete > before.complete:
                self._completed(self.store.record.complete)
            elif self.store.record.complete < before.complete:
                self._went_back(self.store.record.complete)
            if transaction.plan:
                generation = self.store.plan.generation
                phase, start = generation.phase.value, generation.restore_from
                self.log(f"plan: g {generation.number} {phase} from {start} {generation.cause}")
                self.counts[generation.phase.value] += 1
                if generation.phase is GenerationPhase.RUNNING:
                    self._remove_unnamed()
        if result == "done" and self.faulty and self.draw.random() < 0.04:
            result = "unknown"
        self.mail.append((master, ("ended", transaction, result)))

    def store_manifest(self, manifest: Manifest, master: Master) -> None:
        if self.storage_fails():
            master.manifest_written(False)
        else:
            self.storage.manifests[manifest.checkpoint] = manifest
            master.manifest_written(True)

    def storage_fails(self) -> bool:
        return self.faulty and self.draw.random() < 0.04

    # The oracle.

    def note_cut(self, part: StatePart, task: Task) -> None:
        sent, taken = task.cut()
        self.cuts[part.name] = (Counter(sent), Counter(taken))

    def _completed(self, number: int) -> None:
        manifest, plan = self.storage.manifests[number], self.store.plan
        self.counts["complete"] += 1
        self.complete.append(number)
        self.log(f"checkpoint {number} is complete, g {manifest.generation}")
        for part in manifest.parts:
            if plan.generation.incarnation(task_participant(part.task)) != part.incarnation:
                raise Violation(f"S7: {part.name} is of a process that is not named in {plan.generation}")
            self.outside.named.update(token.name for token in part.tokens)
        self._check_cut(manifest, self.store.plans[manifest.generation])
        self._check_history(manifest)
        self._remove_old()

    def _went_back(self, number: int) -> None:
        """Begin a new history with this checkpoint; later checkpoints are struck off."""
        self.counts["histories"] += 1
        self.log(f"back to checkpoint {number}")
        self.complete = self.complete[: self.complete.index(number) + 1]
        manifests = [self.storage.manifests[each] for each in self.complete]
        self.outside.go_back({token.name for manifest in manifests for part in manifest.parts for token in part.tokens})
        self._check_history(manifests[-1])

    def behind(self) -> list[int]:
        """Return the older checkpoints that are kept.

        Checkpoints that were removed do not return when newer ones are struck off.
        """
        return [number for number in self.complete[-KEPT:-1] if number and number not in self.removed]

    def _check_history(self, manifest: Manifest) -> None:
        """Check that state and output (also prepared and named output) equal one execution up to these positions."""
        number = manifest.checkpoint
        positions = {
            split: position
            for part in manifest.parts
            if part.component == SPOUT
            for block in read_part(part, self._reader(part), 0, CODEC)
            for split, position in map(self.process.position_in, block.rows)
        }
        state, output = reference(positions)
        found = self._state_of(manifest)
        if found != state:
            raise Violation(f"S5: the files of {number} hold {found}, not {state}")
        seen = Counter(self.outside.seen)
        for name in manifest.tokens:
            if name not in self.outside.committed:
                if name not in self.outside.prepared:
                    raise Violation(f"S6: {number} names {name}, which is neither prepared nor committed")
                seen.update(self.outside.prepared[name])
        if seen != output:
            raise Violation(f"S5: {number} brings {seen - output} too much, {output - seen} too little")

    def _check_cut(self, manifest: Manifest, plan: Plan) -> None:
        names = {part.task: part.name for part in manifest.parts}
        if set(names) != set(plan.all_tasks):
            raise Violation(f"S1: {sorted(names)} have written for {manifest.checkpoint}, not {plan.all_tasks}")
        for a, b in EDGES:
            for source in plan.tasks[a]:
                for destination in plan.tasks[b]:
                    sent = self.cuts[names[source]][0][destination]
                    taken = self.cuts[names[destination]][1][source]
                    if sent != taken:
                        raise Violation(f"S1: of {sent} frames from {source} {taken} are in the cut of {destination}")

    def check_empty(self, master: Master) -> None:
        """Check that all tasks have aligned and no frame is in flight."""
        generation = master.plan.generation.number
        if master.epoch != self.store.epoch or generation != self.store.plan.generation.number:
            return
        for channel in self.channels.values():
            ends = self.ends[channel.generation, channel.source, channel.destination].values()
            ours = channel.generation == generation and not any(end.cut_off for end in ends)
            if ours and not all(map(self.process.is_barrier, channel.queue)):
                raise Violation(f"S1: {channel} is not empty when everybody has aligned")

    def _reader(self, part: StatePart) -> Callable[[int, int], bytes]:
        data = self.storage.read(part.name)
        return lambda offset, size: data[offset : offset + size]

    def _state_of(self, manifest: Manifest) -> dict[int, Any]:
        state = KeyedState(ALL_GROUPS)
        for part, wanted in reading_plan(manifest.layers[COUNT], ALL_GROUPS):
            blocks = read_part(part, self._reader(part), wanted, CODEC)
            state.load(block for block in blocks if block.group != TASK_STATE)
        return {key: state.peek(key) for key in state}

    def _remove_old(self) -> None:
        kept = [self.storage.manifests[number] for number in self.complete[-KEPT:]]
        needed = {name for manifest in kept for name in manifest.files}
        self.removed.update(self.complete[1:-KEPT])
        for number in self.complete[1:-KEPT]:
            manifest = self.storage.manifests[number]
            for name in manifest.files - needed:
                self.storage.files.pop(name, None)

    def _remove_unnamed(self) -> None:
        needed = {name for number in self.complete[-KEPT:] for name in self.storage.manifests[number].files}
        now = self.store.plan.generation.number
        for name in list(self.storage.files):
            if name not in needed and int(name.split("-")[0]) < now:
                del self.storage.files[name]

    def sweepable(self, generation: int, manifest: Manifest) -> list[str]:
        """Return the tokens that a sink restored in ``generation`` removes: of lower generations and unnamed."""
        return [
            name
            for name in sorted(self.outside.prepared)
            if int(name.split("-")[0]) < generation and name not in manifest.tokens
        ]

    def failed(self, cause: str) -> None:
        raise Violation(f"S3: the topology has failed: {cause}")

    # Processes.

    def _supervise(self) -> None:
        plan = self.store.plan
        for number in plan.all_tasks:
            task = self.tasks.get(number)
            if task is None or task.dead:
                self._start(number, plan.component_of(number))
        if self.store.running:
            for number, task in self.tasks.items():
                if number not in plan.all_tasks and not task.dead:
                    task.die()
        masters = [m for m in self.everybody if isinstance(m, Master) and not m.dead]
        if not any(m.epoch == self.store.epoch for m in masters) and self.everybody and self.now:
            self._new_master()
        self.everybody = [one for one in self.everybody if not one.dead]

    def _start(self, number: int, component: str) -> None:
        self.incarnations[number] += 1
        self.tasks[number] = self.process(self, number, component, self.incarnations[number])
        self.everybody.append(self.tasks[number])

    def _new_master(self) -> None:
        self.counts["masters"] += 1
        self.everybody.append(Master(self))

    def rescale(self, plan: Plan) -> Plan:
        self.next_task += 1
        self.counts["updates"] += 1
        return rescaled(plan, self.next_task)

    # Faults.

    def fault_here(self, task: Task, *, often: bool = False) -> None:
        """Possibly inject a fault after a protocol step, or before one at which a fault is most likely to do harm."""
        if self.faulty and not task.cut_off and self.draw.random() < self.local_rate * (5 if often else 1):
            self._harm(task)

    def _harm(self, task: Task) -> None:
        self.counts["faults"] += 1
        kind = self.draw.choice(["dies", "stalls", "is cut off"])
        self.log(f"task {task.task} ({task.incarnation}) {kind}")
        if kind == "dies":
            task.die()
        else:
            task.stalled_until = self.now + self.draw.choice([200, 1500, 5000, 9000])
        if kind == "is cut off":
            task.cut_off = True
            self.disconnect(task)
            self._start(task.task, task.component)

    def _fault(self) -> None:
        kind = self.draw.random()
        if kind < 0.55:
            task = self.tasks[self.draw.choice(sorted(self.tasks))]
            if not task.dead and not task.cut_off:
                self._harm(task)
        elif kind < 0.68:
            whole = [c for c in self.channels.values() if not c.broken]
            if whole:
                channel = self.draw.choice(whole)
                self.log(f"channel {channel.source} to {channel.destination} breaks")
                self._break(channel)
        elif kind < 0.8:
            masters = [m for m in self.everybody if isinstance(m, Master)]
            if masters and self.draw.random() < 0.7:
                if self.draw.random() < 0.5:
                    masters[-1].dead = True
                else:
                    masters[-1].stalled_until = self.now + self.draw.choice([300, 3000])
            self.log("another master")
            self._new_master()
        elif self.behind() and self.draw.random() < 0.6:
            plan, back = self.store.plan, self.draw.choice(self.behind())
            self.log(f"the owner asks for checkpoint {back} again")
            self.store.plan = replace(plan, back=back, version=plan.version + 1)
        elif not self.store.plan.wanted:
            plan = self.store.plan
            component, most = self.draw.choice([(COUNT, 3), (COUNT, 3), (SINK, 2)])
            wanted = (component, most - 1 if len(plan.tasks[component]) == most else most)
            self.log(f"update to {wanted}")
            self.store.plan = replace(plan, wanted=wanted, version=plan.version + 1)

    # Running.

    def run(self) -> Counter[str]:
        """Run until everything is read, committed and at rest. Raises Violation."""
        draw = self.draw
        _, whole = reference(EVERYTHING)
        while True:
            self.now += 1
            if self.now == FAULTY_STEPS:
                self._calm()
            choice = draw.random()
            if choice < 0.3:
                if self.mail:
                    self._deliver()
            elif choice < 0.33:
                if self.transactions and draw.random() < self.slow_store / 0.03:
                    self._apply()
            elif choice < 0.34:
                self._supervise()
                self._notice_breaks()
            elif choice < 0.35:
                if self.faulty and draw.random() < self.fault_rate * 30:
                    self._fault()
            else:
                one = draw.choice(self.everybody)
                if not one.dead and one.stalled_until <= self.now:
                    one.step()
            if self.late_mail and self.now % 16 == 0:
                due = [entry for entry in self.late_mail if entry[0] <= self.now]
                self.late_mail = [entry for entry in self.late_mail if entry[0] > self.now]
                self.mail += [(to, message) for _, to, message in due]
            if self.now % 256 == 0 and self.now > FAULTY_STEPS:
                if self.outside.seen == whole and self.store.running and not self.store.plan.wanted:
                    self.counts["steps"] += self.now
                    return self.counts
                if self.now > FAULTY_STEPS + QUIET_STEPS:
                    raise Violation(
                        f"S3: no progress: {self.store.plan.generation}, {self.store.record}, "
                        f"{sum(self.outside.seen.values())} of {sum(whole.values())} seen"
                    )

    def _calm(self) -> None:
        self.faulty = False
        for one in self.everybody:
            if not getattr(one, "cut_off", False):
                one.stalled_until = min(one.stalled_until, self.now + 500)


def run(seed: int, say: Callable[[str], None] | None = None, process: type[Task] = Task) -> Counter[str]:
    """Run one schedule. Raises Violation."""
    return CheckpointSimulation(seed, say, process).run()
