"""Files that the micro-batches of a stream append to its result (``core/stream_sinks.py``).

A micro-batch writes the files of its sinks into a folder of its own, in a work folder next to OUTPUT, and the manifest
of its portion names this folder. From the rename of the portion, the files are part of the result: each is moved into
the folder of its sink by one rename. If the driver dies before all are moved, the next run moves the others before it
reads anything. A reader therefore sees whole files, each record once, and files of earlier micro-batches never change.

CHECKPOINT has no copy of these files, so it and OUTPUT belong together: the manifest of OUTPUT names the stream, and a
stream does not continue with an OUTPUT that lacks what it has appended.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from data_pipeline.core.plan import CannotPlan
from data_pipeline.shell.output import MANIFEST, OutputFolder, Place, append_parts
from data_pipeline.shell.resolved_request import ResolvedRequest
from data_pipeline.shell.staged import manifest_of

NAME_BYTES = 8
STREAM = "stream"  # in the manifest of OUTPUT: the stream that appends to it


class AppendedFiles:
    """Result to which the micro-batches of one stream append.

    Args:
        spark: The session; None for local folders only.
        resolved: The request of the stream, with OUTPUT, CHECKPOINT, and the sinks whose files are appended.
    """

    def __init__(self, spark: SparkSession | None, resolved: ResolvedRequest) -> None:
        self._spark: Any = spark
        request = resolved.request
        self._url, self._checkpoint, self._replace = request.output_path, request.checkpoint, request.replace
        self.steps = [output.step for output in resolved.appended_files]
        self._place = Place(spark, self._url)

    def open(self, stream: str, staged: str | None) -> bool:
        """Prepare OUTPUT for the next micro-batches.

        Args:
            stream: Identity of the stream.
            staged: What the last micro-batch has staged; None for the first run of the stream.

        Returns:
            True if a dead driver had not moved all of these files.

        Raises:
            CannotPlan: OUTPUT lacks what the stream has appended.
            OutputExists: OUTPUT holds another result, which must not be replaced.
        """
        manifest = manifest_of(self._place) or {}
        if staged is not None:
            if manifest.get(STREAM) != stream:
                raise CannotPlan(
                    f"{self._url} lacks the files that earlier micro-batches of {self._checkpoint} have appended, and "
                    "their input is not read again. Give the --output-path of the earlier runs, or bring its folder "
                    "back; or name another --checkpoint and another --output-path, and all input is read again"
                )
            is_late = self.append(staged) > 0
            OutputFolder(self._spark, self._url, replace=True).discard()  # and the leftovers of dead drivers
            return is_late
        is_own = manifest.get("checkpoint") == self._checkpoint and not self._holds_files()
        with OutputFolder(self._spark, self._url, replace=self._replace or is_own) as folder:
            for step in self.steps:
                folder.add_folder(step)
            folder.commit({STREAM: stream, "checkpoint": self._checkpoint, "outputs": self.steps})
        return False

    def _holds_files(self) -> bool:
        return any(Place(self._spark, f"{self._url.rstrip('/')}/{step}").names() for step in self.steps)

    def stage(self, write: Callable[[str], None]) -> str:
        """Write the files of a micro-batch into a new folder, and return its URL for ``append``.

        Args:
            write: Writes a folder for each sink below the URL it is given.
        """
        folder = OutputFolder(self._spark, self._url, replace=True)
        name = secrets.token_hex(NAME_BYTES)  # work folders of consecutive processes can have the same name
        try:
            write(f"{folder.work}/{name}")
            for step in self.steps:
                folder.rename_parts(f"{name}/{step}", ".json")
        except BaseException:
            folder.discard()
            raise
        return f"{folder.work}/{name}"

    def append(self, staged: str) -> int:
        """Move the staged files that are not yet in OUTPUT, and return their number. Idempotent."""
        return append_parts(self._spark, staged, self._url) if staged else 0

    def write(self, name: str, content: bytes) -> None:
        """Write a file next to the folders of the sinks, or replace it."""
        self._place.write(name, content)

    def describe(self, manifest: Mapping[str, Any]) -> None:
        """Replace the manifest of OUTPUT, whose stream stays the same."""
        stream = (manifest_of(self._place) or {}).get(STREAM, "")
        content = json.dumps({**manifest, STREAM: stream}, indent=2, sort_keys=True)
        self._place.write(MANIFEST, content.encode())
