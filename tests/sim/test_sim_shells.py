"""Production shells on simulated time: schedules by seed, that a seed fixes them, mutations that the laws notice."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from budget import Budget

from heron_instance.core.download import Download
from heron_instance.core.outgoing import Outgoing
from heron_instance.shell import gateway as gateway_module
from heron_instance.shell.gateway import Gateway
from heron_runtime.model.handed_over import HandedOver
from heron_runtime.net.frames import FrameDecoder
from heron_runtime.net.link import LinkStream
from heron_runtime.wire.control import StreamManagerHello

from .noticing import Mutations, broken_law
from .shells.schedule import run

ROOT = Path(__file__).resolve().parents[2]
LANES, FLOOR, SECONDS = 2, 12, 10.0
MUTATION_FLOOR, MUTATION_SECONDS = 60, 20.0

MUTATIONS = Mutations(run, MUTATION_FLOOR, MUTATION_SECONDS)
mutation = MUTATIONS.breaks


@pytest.mark.timeout(600)
@pytest.mark.parametrize("lane", range(1, LANES + 1))
def test_links_keep_their_laws(lane: int, record_property: Callable[[str, object], None]) -> None:
    budget, told = Budget(SECONDS, FLOOR), list[str]()
    for seed in itertools.takewhile(lambda _: budget.more(), itertools.count(lane, LANES)):
        broken = broken_law(run, seed)
        told += [f"seed {seed}: {broken}\nreplay: python -m tests.sim.shells {seed}"] if broken else []
    record_property("schedules of shells", budget.used)
    assert not told, "\n".join(told)


def test_schedules_of_shells_are_not_idle() -> None:
    outcomes = [run(seed) for seed in range(1, 13)]
    assert sum(outcome.received for outcome in outcomes) > 3000
    assert sum(outcome.faults for outcome in outcomes) > 60
    assert any(outcome.missing for outcome in outcomes)
    assert any(outcome.counted > outcome.missing for outcome in outcomes)


def test_a_seed_fixes_a_schedule_of_shells() -> None:
    program = "from tests.sim.shells.schedule import run; print(run(10))"
    found = {str(run(10))}
    for hash_seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", program]
        found.add(subprocess.check_output(command, cwd=ROOT, env=environment, text=True, timeout=120).strip())
    assert len(found) == 1, found


# After a break the old limit stands, and what is sent counts on: a gateway that sends what nobody has granted.
@mutation("against the protocol|quiet seconds")
def credit_of_the_link_before_is_kept(patch: pytest.MonkeyPatch) -> None:
    def begin_stream(self: Outgoing) -> None:
        self._sent = self._sequence = 0

    patch.setattr(Outgoing, "begin_stream", begin_stream)


@mutation("quiet seconds")
def what_was_sent_on_the_link_before_counts(patch: pytest.MonkeyPatch) -> None:
    def begin_stream(self: Outgoing) -> None:
        self._limit = self._sequence = 0

    patch.setattr(Outgoing, "begin_stream", begin_stream)


@mutation("over its credit")
def a_task_grants_what_it_has_taken_before_once_more(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Download, "begin_stream", lambda self: setattr(self, "_granted", (-1, 0, 0)))


@mutation("knows stream manager|there is none")
def every_stream_manager_seems_the_same(patch: pytest.MonkeyPatch) -> None:
    real = gateway_module.say_hello

    async def say_hello(*arguments: Any) -> StreamManagerHello:
        hello = await real(*arguments)
        return StreamManagerHello(hello.protocol, hello.topology_id, hello.container, 101)

    patch.setattr(gateway_module, "say_hello", say_hello)


@mutation("missing, and")
def losses_of_links_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HandedOver, "lose", lambda self, lost: self._frames.clear())


@mutation("out of order")
def a_gateway_sends_the_last_frame_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outgoing, "put", lambda self, flush: self._frames.extendleft(flush.frames))


@mutation("against the protocol|quiet seconds|missing")
def the_start_of_a_header_is_dropped(patch: pytest.MonkeyPatch) -> None:
    real = FrameDecoder.received

    def received(self: FrameDecoder, count: int) -> Any:
        frames = real(self, count)
        self._start = b""
        return frames

    patch.setattr(FrameDecoder, "received", received)


@mutation("has ended")
def a_broken_link_is_not_opened_again(patch: pytest.MonkeyPatch) -> None:
    async def once(self: Gateway) -> None:
        try:
            await self._link()
        except (gateway_module.LinkFault, OSError, gateway_module.MalformedMessage):
            pass

    patch.setattr(Gateway, "_keep_linked", once)


@mutation("quiet seconds")
def a_writer_is_never_woken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LinkStream, "resume_writing", lambda self: None)


test_a_broken_shell_is_noticed = MUTATIONS.test()
