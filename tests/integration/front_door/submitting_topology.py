"""Topology whose bolt submits another topology with the command when it first starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Grouping, Spout, Topology


class Numbers(Spout):
    """Spout that emits nothing."""

    outputs = ["number"]

    def next_tuple(self) -> None:
        """Emit nothing."""


class Submit(BasicBolt):
    """Bolt that submits ``user.inner`` from the file ``user.file`` and records the command's output."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Submit the inner topology once."""
        said = Path(config["user.folder"], "said")
        if not said.exists():
            command = [
                sys.executable,
                "-m",
                "heron_cli",
                "submit",
                "local",
                "--name",
                config["user.inner"],
                "--no-wait",
            ]
            done = subprocess.run(
                [*command, config["user.file"], "Submitting"], capture_output=True, text=True, check=False
            )
            part = said.with_suffix(".part")
            part.write_text(f"{done.returncode}\n{done.stdout}\n{done.stderr}")
            part.rename(said)

    def process(self, tup: Any) -> None:
        """Ignore the tuple."""


class Submitting(Topology):
    """Topology with the arguments folder, name and file of the inner one; without them it submits nothing."""

    folder, inner, file = sys.argv[1:4] if len(sys.argv) > 3 else ("", "", "")
    config = {"user.folder": folder, "user.inner": inner, "user.file": file}
    numbers = Numbers.spec()
    submit = Numbers.spec() if not inner else Submit.spec(inputs={numbers: Grouping.SHUFFLE})
