"""A topology whose bolt submits another one, with the command, when it starts for the first time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Grouping, Spout, Topology


class Numbers(Spout):
    """Nothing."""

    outputs = ["number"]

    def next_tuple(self) -> None:
        """Nothing."""


class Submit(BasicBolt):
    """Submits ``user.inner``, whose file is ``user.file``, and writes down what the command said."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Once."""
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
        """Nothing."""


class Submitting(Topology):
    """Arguments: folder, name and file of the inner one. Without them there is nothing to submit."""

    folder, inner, file = sys.argv[1:4] if len(sys.argv) > 3 else ("", "", "")
    config = {"user.folder": folder, "user.inner": inner, "user.file": file}
    numbers = Numbers.spec()
    submit = Numbers.spec() if not inner else Submit.spec(inputs={numbers: Grouping.SHUFFLE})
