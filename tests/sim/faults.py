"""Faults drawn at random moments of the first phase; each is logged in the trace.

In some schedules the faults are a *swarm*: a few kinds only, drawn with the seed. A mixture of all kinds rarely does
one thing ten times in a row, and some kinds hide the effects of others (a process that dies constantly has no long
queue).

Where the network carries bytes, tampering always garbles, and occurs three times as often: only a few garbles truncate
a message at a critical position, while dropped and repeated packets occur in every other simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from heron_runtime.model.topology import TopologyState

from .cluster import Cluster
from .wire import KEEPALIVE_MS, Channel


class Faults:
    """Generator of faults until ``until_ms``; ``rate_ms`` is the mean interval.

    Faults are numbered as they are drawn; with ``only``, the others do not occur. ``cluster.swarm`` is the number of
    kinds of faults.
    """

    def __init__(self, cluster: Cluster, until_ms: float, rate_ms: float, only: Collection[int] | None = None) -> None:
        self._drawn = 0
        self._only = only
        self.cluster = cluster
        self.world = cluster.world
        self._until_ms = until_ms
        self._rate_ms = rate_ms
        self._kinds: tuple[Callable[[], None], ...] = (
            self._break, self._break, self._break, self._crash_instance, self._crash_instance, self._crash_manager,
            self._crash_master, self._pause, self._partition, self._partition, self._store, self._lost_answer,
            self._slow, self._toggle, self._tamper, self._slow_network,
        )  # fmt: skip
        if cluster.network.encodes:
            self._kinds += (self._tamper, self._tamper)
        if cluster.swarm:
            self._kinds = tuple(self.world.rng.sample(list(dict.fromkeys(self._kinds)), cluster.swarm))
            self.world.log("fault", f"a swarm of {', '.join(kind.__name__.strip('_') for kind in self._kinds)}")

    def without_losses(self) -> None:
        """Keep only faults that lose no tuple: faults of masters, and short stops of processes."""
        self._kinds = (self._crash_master, self._store, self._lost_answer, self._pause_shortly, self._pause_shortly)

    def start(self) -> None:
        """Schedule the first fault."""
        self._next()

    def _next(self) -> None:
        self.world.after(self.world.between(0.2, 1.8) * self._rate_ms, self._strike)

    def _strike(self) -> None:
        if self.world.now_ms < self._until_ms:
            strike = self.world.rng.choice(self._kinds)
            if self._only is None or self._drawn in self._only:
                strike()
                self.cluster.checkers.fault()
            self._drawn += 1
            self._next()

    def _pick(self, found: list[Any]) -> Any:
        return self.world.rng.choice(found) if found else None

    def _break(self) -> None:
        channel = self._pick(list(self.cluster.network.channels))
        if channel is not None:
            self.world.log("fault", f"breaks {channel.ends[0].process.name}-{channel.ends[1].process.name}")
            channel.cut("broken")

    def _crash(self, processes: list[Any]) -> None:
        process = self._pick([p for p in processes if p.alive])
        if process is not None:
            process.crash("killed", self.world.between(10, 1500))

    def _crash_instance(self) -> None:
        self._crash(list(self.cluster.instances.values()))

    def _crash_manager(self) -> None:
        self._crash(list(self.cluster.stream_managers.values()))

    def _crash_master(self) -> None:
        self._crash(list(self.cluster.masters))

    def _pause(self) -> None:
        process = self._pick([p for p in self.cluster.processes() if p.alive and not p.paused])
        if process is not None:
            process.pause(self.world.rng.choice((200.0, 1200.0, 4500.0)))

    def _pause_shortly(self) -> None:
        cluster = self.cluster
        processes = [*cluster.stream_managers.values(), *cluster.stream_managers.values(), *cluster.instances.values()]
        process = self._pick([p for p in processes if p.alive and not p.paused])
        if process is not None:
            process.pause(self.world.rng.choice((200.0, 600.0, 1200.0)))

    def _partition(self) -> None:
        hosts = sorted({p.host for p in self.cluster.processes()})
        one, other = self.world.rng.choice(hosts), self.world.rng.choice(hosts)
        if one != other:
            until = self.world.now_ms + self.world.rng.choice((300.0, 2000.0, 7000.0))
            both = self.world.chance(0.5)
            ways = f"from host {one} to {other}{' or back' if both else ''}"
            self.world.log("fault", f"nothing gets {ways} until {until:.0f}")
            self.cluster.network.block(one, other, until)
            # A stuck connection stays stuck, also when the faults end, until this time or until it is given up.
            self.cluster.checkers.fault(min(until, self.world.now_ms + KEEPALIVE_MS))
            if both:
                self.cluster.network.block(other, one, until)

    def _store(self) -> None:
        master = self._pick([m for m in self.cluster.masters if m.alive])
        if master is not None and self.world.chance(0.7):
            master.lose_store(self.world.rng.choice((300.0, 1500.0, 5000.0)))
        elif master is not None:
            master.log("its store session expires")
            master.store.expire_session()

    def _lost_answer(self) -> None:
        master = self._pick([m for m in self.cluster.masters if m.alive])
        if master is not None:
            master.lose_next_answer = True

    def _slow(self) -> None:
        bolts = [i for i in self.cluster.instances.values() if not i.is_spout]
        instance = self._pick(bolts)
        if instance is not None:
            self.world.log("fault", f"{instance.name} is slow for a while")
            slow = self.cluster.program.slow_ms
            slow[instance.task] = self.world.rng.choice((20.0, 100.0))
            self.world.after(2000, lambda: slow.pop(instance.task, None))

    def _toggle(self) -> None:
        self.cluster.ask(self.world.rng.choice((TopologyState.PAUSED, TopologyState.RUNNING)))

    def _tamper(self) -> None:
        channels = self.cluster.network.channels
        if self.cluster.network.encodes:
            self._garble(list(channels))
            return
        channel = self._pick([c for c in channels if c.ends[1].process not in self.cluster.masters])
        if channel is None or not self.world.chance(0.3):
            return
        end = self._pick(list(channel.ends))
        how = self.world.rng.choice(("drop", "repeat"))
        self.world.log("fault", f"the next packet of {end.process.name} to {end.far.process.name}: {how}")
        self.cluster.checkers.tampered = True
        for manager in self.cluster.stream_managers.values():
            manager.tampered += 1
        end.data.tamper(how)

    def _garble(self, channels: list[Channel]) -> None:
        channel = self._pick(channels)
        if channel is not None:
            end = self._pick(list(channel.ends))
            stream, pipe = self._pick([("packet", end.data), ("packet", end.data), ("control message", end.control)])
            self.world.log("fault", f"the next {stream} of {end.process.name} to {end.far.process.name}: garble")
            pipe.tamper("garble")

    def _slow_network(self) -> None:
        self.cluster.network.slowest_ms = self.world.rng.choice((0.5, 3.0, 30.0, 200.0))
