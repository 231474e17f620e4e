"""How the world is asked with a bound: commands by a timeout of their own, whatever else may block on a thread that is
left behind when it takes too long.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from heron_cli.diagnosis.findings import Finding, bad
from heron_runtime.failures import one_line, to_failure

ANSWER_SECONDS = 10.0  # of one command
CHECK_SECONDS = 60.0  # of one check, which may ask several times


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command printed; ``trouble`` says why it failed, and is empty if it did not."""

    said: str = ""
    trouble: str = ""


def ask(command: Sequence[str], seconds: float = ANSWER_SECONDS) -> Answer:
    """Run a command that only looks. Raises nothing: what goes wrong is the answer's trouble."""
    if shutil.which(command[0]) is None:
        return Answer(trouble=f"there is no command {command[0]}")
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=seconds,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Answer(trouble=f"`{' '.join(command[:2])}` does not answer within {seconds:g} s")
    except OSError as error:
        return Answer(trouble=f"{command[0]} cannot be run: {error}")
    if done.returncode == 0:
        return Answer(said=done.stdout.strip())
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return Answer(done.stdout.strip(), one_line(lines[-1] if lines else f"exit code {done.returncode}"))


def within(check: str, look: Callable[[], Iterable[Finding]], seconds: float = CHECK_SECONDS) -> list[Finding]:
    """What a look finds; one that breaks, or does not end in time, is a finding too."""
    found: list[list[Finding]] = []

    def run() -> None:
        try:
            found.append(list(look()))
        except Exception as error:
            known = to_failure(error)
            text, cure = (known.message, known.cure) if known else (f"{type(error).__name__}: {error}", "")
            found.append([bad(check, text, cure)])

    thread = threading.Thread(target=run, name=f"look at {check}", daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else [bad(check, f"no answer within {seconds:g} s", "See whether it hangs, and why.")]
