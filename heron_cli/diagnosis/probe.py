"""Commands and checks of ``heron doctor`` with a time limit.

A check runs on a thread of its own, which is left behind when the check does not end in time.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from heron_cli.diagnosis.findings import Finding, bad
from heron_runtime.failures import one_line, to_failure

COMMAND_SECONDS = 10.0
CHECK_SECONDS = 60.0  # a check may run several commands


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """Standard output of a command, and why the command failed ("" if it succeeded)."""

    stdout: str = ""
    trouble: str = ""


def run_command(command: Sequence[str], seconds: float = COMMAND_SECONDS) -> CommandOutput:
    """Run a command that changes nothing. Raises nothing: the output names the failure."""
    if shutil.which(command[0]) is None:
        return CommandOutput(trouble=f"command not found: {command[0]}")
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=seconds,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return CommandOutput(trouble=f"`{' '.join(command[:2])}` does not answer within {seconds:g} s")
    except OSError as error:
        return CommandOutput(trouble=f"{command[0]} cannot be run: {error}")
    if done.returncode == 0:
        return CommandOutput(stdout=done.stdout.strip())
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return CommandOutput(done.stdout.strip(), one_line(lines[-1] if lines else f"exit code {done.returncode}"))


def run_check(check: str, probe: Callable[[], Iterable[Finding]], seconds: float = CHECK_SECONDS) -> list[Finding]:
    """Return the findings of a check. An exception or a timeout is a finding as well.

    Args:
        check: Name of the check.
        probe: Collects and judges the facts.
        seconds: Time limit.
    """
    results: list[list[Finding]] = []

    def run() -> None:
        try:
            results.append(list(probe()))
        except Exception as error:
            known = to_failure(error)
            text, cure = (known.message, known.cure) if known else (f"{type(error).__name__}: {error}", "")
            results.append([bad(check, text, cure)])

    thread = threading.Thread(target=run, name=f"check {check}", daemon=True)
    thread.start()
    thread.join(seconds)
    return results[0] if results else [bad(check, f"no answer within {seconds:g} s", "Find out why it hangs.")]
