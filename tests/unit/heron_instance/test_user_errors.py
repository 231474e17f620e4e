"""Errors of user code: counters, reports, and whether the task continues."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from heron_instance.core.ack_delivery import takes_reason
from heron_instance.core.input_batch import MAX_TEXTS, FailureBuffer
from heron_instance.core.task_metrics import CounterBuffer
from heron_instance.core.user_code import LETTER_LOG_SECONDS, Call, Hooks, NoLock, UserCode, UserErrors
from heron_runtime.model.dataflow import MAX_REASON_TEXT, FailKind, FailReason
from heron_runtime.model.ids import root_base
from heronry.api.hooks import (
    BoltAckInfo,
    BoltExecuteInfo,
    BoltFailInfo,
    EmitInfo,
    SpoutAckInfo,
    SpoutFailInfo,
    TaskHook,
)
from heronry.api.tuples import Tuple, tick_tuple

NOW = 7.5


class Told:
    """Telemetry stand-in."""

    def __init__(self) -> None:
        self.exceptions: list[tuple[Any, ...]] = []
        self.counts: list[tuple[str, float]] = []

    def exception(self, class_name: str, message: str, traceback: str, now: float, n: int = 1) -> None:
        self.exceptions.append((class_name, message, traceback.splitlines()[-1:], now, n))

    def count(self, name: str, n: float) -> None:
        self.counts.append((name, n))


def made(policy: str = "fail", wall: Callable[[], float] = lambda: NOW) -> tuple[UserErrors, Told, Callable[[], Any]]:
    """Return a task's errors, its telemetry, and a function that returns the counts since its last call."""
    told = Told()
    counts = CounterBuffer(told)  # type: ignore[arg-type]  # all that errors use of it
    errors = UserErrors("b", policy, counts, told, wall)  # type: ignore[arg-type]

    def counted() -> dict[str, float]:
        told.counts.clear()
        assert bool(counts) == bool(counts._counts)
        counts.hand_over()
        assert not counts
        return dict(told.counts)

    return errors, told, counted


@pytest.mark.parametrize(("policy", "strict", "fails"), [("fail", 0, 0), ("restart", 0, 1), ("fail", 1, 1)])
def test_exception_is_counted_reported_and_restarts_by_policy(policy: str, strict: int, fails: int) -> None:
    errors, told, counted = made(policy)
    assert errors.strict is False
    assert counted() == {"__exception-count": 0}, "what never happens is shown as 0"
    errors.strict = bool(strict)
    trace = errors.record_exception(KeyError("x"), "process")
    assert trace == "KeyError: 'x'\n"
    assert counted() == {"__exception-count": 1}
    assert told.exceptions == [("KeyError", "'x'", ["KeyError: 'x'"], NOW, 1)]
    assert str(errors.failed) == ("b.process raised KeyError: 'x'" if fails else "None")
    errors.record_exception(ValueError("y"), "close")
    assert "KeyError" in str(errors.failed) or not fails, "the first reason counts"


def test_text_that_utf_8_cannot_hold_is_escaped() -> None:
    errors, told, _ = made("restart")
    errors.record_exception(SystemExit("\ud800"), "process")
    assert told.exceptions[0][1:3] == ("\\ud800", ["SystemExit: \\ud800"])
    str(errors.failed).encode()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("reason", "kind", "message"),
    [
        ("TypeError: not: so", "TypeError", "not: so"),
        ("a tuple of 9 bytes is too large: emit it in parts", "ValuesError", None),
        ("nothing else", "ValuesError", None),
    ],
)
def test_refused_tuples_are_exceptions(reason: str, kind: str, message: str | None, strict: bool) -> None:
    errors, told, counted = made("restart")
    errors.strict = strict
    errors.record_refused("odd", reason, 3)
    text = f"a tuple of stream 'odd' of 'b' cannot be sent: {message or reason}"
    assert told.exceptions == [(kind, text, [], NOW, 3)]
    assert counted() == {"__exception-count": 3, "__refused-tuple-count": 3}
    assert str(errors.failed) == (text if strict else "None"), "it restarts nothing but where state is kept"


def test_dead_letter_has_bounded_class_message_and_traceback() -> None:
    errors, told, counted = made()
    counted()
    line, trace = errors.record_dead_letter(ValueError("\ud800" + "m" * 2 * MAX_REASON_TEXT))
    assert line == ("ValueError: \\ud800" + "m" * MAX_REASON_TEXT)[:MAX_REASON_TEXT]
    assert len(trace) == MAX_REASON_TEXT
    assert trace.endswith("mm\n"), "of a traceback the end is kept"
    assert errors.record_dead_letter("no such user") == ("failed: no such user", "")
    assert errors.record_dead_letter(None) == ("failed: ", "")
    assert [one[:2] for one in told.exceptions[1:]] == [("failed", "no such user"), ("failed", "")]
    assert told.exceptions[1][2:] == ([], NOW, 1)
    assert counted() == {"__dead-letter-count": 3}
    assert errors.failed is None

    class Mute(ValueError):
        def __str__(self) -> str:
            raise OSError("no")

    assert errors.record_dead_letter(Mute())[0] == "Mute: (no text: __str__ raised OSError)"


def test_dead_letter_log_is_limited_to_one_line_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    errors, _, _ = made(wall=lambda: now[0])
    logged: list[str] = []
    caplog.set_level(logging.WARNING)
    for seconds in (0.0, 1.0, LETTER_LOG_SECONDS - 0.5, LETTER_LOG_SECONDS, 0.0, -50.0):
        now[0] = 100.0 + seconds
        caplog.clear()
        errors.record_dead_letter("x")
        logged += [record.getMessage() for record in caplog.records] or ["-"]
    told = "b: dead letters since the last log line: {}, the newest: failed: x\n".format
    # The last two times precede the last logged one: a clock set back must not silence the log.
    assert logged == [told(1), "-", "-", told(3), told(1), told(1)]


def test_reason_keeps_the_start_of_the_message_and_the_end_of_the_traceback() -> None:
    failures = FailureBuffer("b", 2)
    failures.add_roots([root_base(1, 5) + 7] * 2, FailKind.FAILED, "m" * 9000 + "end", "begin" + "t" * 9000)
    assert failures.waiting()
    (fail,) = failures.take()
    assert fail.reason.message == "m" * MAX_REASON_TEXT
    assert fail.reason.traceback == "t" * MAX_REASON_TEXT
    assert (fail.reason.kind, fail.reason.component, fail.reason.task) == (FailKind.FAILED, "b", 2)
    assert memoryview(fail.roots).cast("Q").tolist() == [root_base(1, 5) + 7], "each root once"


def test_failed_tuples_are_counted_by_source_arrival_and_kind() -> None:
    failures = FailureBuffer("b", 2)
    for n in (2, 3):
        failures.count("s", "default", 10.0, FailKind.FAILED, n)
    failures.count("s", "default", 11.0, FailKind.FAILED, 4)
    failures.count("s", "default", 10.0, FailKind.EXCEPTION, 5)
    assert list(failures.newly_failed.values()) == [5, 4, 5]


@pytest.mark.parametrize(
    ("fail", "takes"),
    [
        (lambda tup_id: None, False),
        (lambda tup_id, reason: None, True),
        (lambda tup_id, reason=None: None, True),
        (lambda tup_id, /, reason: None, True),
        (lambda *ids: None, True),
        (lambda tup_id, *, reason=None: None, False),
        (lambda tup_id, **more: None, False),
        (lambda: None, False),
        (7, False),  # not callable: the call reports it
    ],
)
def test_fail_receives_the_reason_if_its_signature_allows(fail: Any, takes: bool) -> None:
    assert takes_reason(fail) is takes


class Watched(NoLock):
    """Lock that counts how often it is held."""

    held = 1

    def acquire(self, blocking: bool = True) -> bool:
        self.held += 1
        return True

    def release(self) -> None:
        self.held -= 1


def test_user_code_runs_without_the_lock_and_nested_calls_keep_the_outer_name() -> None:
    lock, now = Watched(), [2.0]
    user_code = UserCode(lambda: now[0], lock)
    assert user_code.call is None
    with user_code("next_tuple"):
        assert (user_code.call, lock.held) == (Call("next_tuple", 2000.0), 0)
        now[0] = 3.0
        lock.acquire()
        with contextlib.suppress(ValueError), user_code("ack"):
            assert (user_code.call, lock.held) == (Call("next_tuple", 2000.0), 0)
            raise ValueError("no")
        assert (user_code.call, lock.held) == (Call("next_tuple", 2000.0), 1)
        lock.release()
    assert (user_code.call, lock.held) == (None, 1)


@pytest.mark.parametrize("kind", [FailKind.FAILED, FailKind.EXCEPTION])
def test_failure_texts_of_one_kind_leave_room_for_another(kind: FailKind) -> None:
    """User code may give a new text for each failure, so only the first texts of a kind are sent."""
    failures, other = FailureBuffer("b", 2), ({FailKind.FAILED, FailKind.EXCEPTION} - {kind}).pop()
    for n in range(MAX_TEXTS + 1):
        failures.add_roots([root_base(1, 5) + n], kind, f"no {n}")
    failures.add_roots([root_base(1, 5) + 99], other, "boom")
    told = [(fail.reason.kind, fail.reason.message) for fail in failures.take()]
    assert told == [*((kind, f"no {n}") for n in range(MAX_TEXTS)), (kind, ""), (other, "boom")]


def test_failures_without_roots_do_not_block_others() -> None:
    failures = FailureBuffer("b", 2)
    failures.add_roots([], FailKind.FAILED, "of untracked tuples")
    failures.add_roots([root_base(1, 5) + 7], FailKind.FAILED, "no")
    failures.add_roots([root_base(3, 5) + 1], FailKind.EXCEPTION, "boom")
    assert [(fail.task, fail.reason.message) for fail in failures.take()] == [(1, "no"), (3, "boom")]
    assert not failures.waiting()


def test_hook_that_raises_in_clean_up_does_not_stop_others(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []

    class Raises(TaskHook):
        def clean_up(self) -> None:
            ended.append("raises")
            raise OSError("it was closed before")

    class Ends(TaskHook):
        def clean_up(self) -> None:
            ended.append("ends")

    context: Any = SimpleNamespace(hooks=[Raises(), Ends()])
    Hooks(context, 1, lambda name, n: None, lambda: 0.0).clean_up()
    assert ended == ["raises", "ends"]
    assert "task hook Raises.clean_up raised" in caplog.text


def test_each_exception_of_a_hook_is_counted() -> None:
    class Raises(TaskHook):
        def spout_ack(self, info: Any) -> None:
            raise OSError("no")

    counted: Counter[str] = Counter()
    context: Any = SimpleNamespace(hooks=[Raises(), TaskHook(), Raises()])
    Hooks(context, 1, lambda name, n: counted.update({name: int(n)}), lambda: 0.0).spout_ack(7, 1.0)
    assert counted == {"__hook-exception-count": 2}


def test_hooks_receive_complete_information() -> None:
    seen: list[Any] = []

    def notes(self: Any, info: Any) -> None:
        seen.append(info)

    methods = ("emit", "spout_ack", "spout_fail", "bolt_execute", "bolt_ack", "bolt_fail")
    hook = type("Notes", (TaskHook,), dict.fromkeys(methods, notes))()
    context: Any = SimpleNamespace(hooks=[])
    hooks = Hooks(context, 4, lambda name, n: None, lambda: 3.0)
    assert not hooks
    context.hooks.append(hook)
    assert hooks
    batch: Any = SimpleNamespace(arrived_ms=2750.0)
    tup, tick, reason = Tuple((1,), 0, batch), tick_tuple(1), FailReason(FailKind.FAILED, "b", 2, "no")
    assert hooks.spout_emits((1,), "id", "odd", 7) is True
    assert hooks.bolt_emits((1,), [tup], "odd", 7) is True
    hooks.spout_ack("id", 12.5)
    hooks.spout_fail("id", 12.5, reason)
    hooks.bolt_execute(tup, 1.5)
    hooks.bolt_ack(tup)
    hooks.bolt_fail(tup)
    hooks.bolt_ack(tick)
    assert seen == [
        EmitInfo((1,), "odd", 4, "id", 7), EmitInfo((1,), "odd", 4, None, 7), SpoutAckInfo("id", 4, 12.5),
        SpoutFailInfo("id", 4, 12.5, reason), BoltExecuteInfo(tup, 4, 1.5), BoltAckInfo(tup, 4, 250.0),
        BoltFailInfo(tup, 4, 250.0), BoltAckInfo(tick, 4, 0.0),
    ]  # fmt: skip
