"""Prepared submission in its staging folder, which can be completed or removed."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from heron_control.progress import Progress
from heron_control.schedulers.scheduler import Scheduler
from heron_control.schedulers.topology_folder import LAUNCH_FILE
from heron_control.submission.adopting import Adoption, Found, adopt_files
from heron_control.submission.submission import Submission
from heron_runtime.launch import Launch
from heron_runtime.model.records import ExecutionState
from heron_runtime.model.settings import Keys, setting

log = logging.getLogger(__name__)


@dataclass
class Prepared:
    """Submission in its ``staging`` folder; ``adoption`` holds the files of its start checkpoint."""

    launch: Launch
    staging: Path
    submission: Submission
    execution: ExecutionState
    adoption: Adoption | None = None

    def adopt(self, found: Found, scheduler: Scheduler, progress: Progress) -> None:
        """Start with this checkpoint. Raises as ``adopt_files`` and ``Scheduler.place_checkpoint``."""
        definition, packing = self.submission.definition, self.submission.packing
        bounded = setting(self.launch.settings, Keys.HERON_VOLUME_FOLDER) is not None
        adoption = adopt_files(found, definition, packing, self.staging, progress, bounded=bounded)
        self.adoption = adoption
        self.launch = dataclasses.replace(
            self.launch, start_checkpoint=adoption.checkpoint, start_generation=adoption.generation
        )
        self.launch.save(self.staging / LAUNCH_FILE)
        scheduler.place_checkpoint(self.launch, self.staging)

    def undo(self, scheduler: Scheduler) -> None:
        """Remove the submission. None of its processes runs; a topology of the same name is left alone."""
        try:
            if self.adoption is not None:
                self.adoption.undo()
            scheduler.remove(self.launch)
        except Exception:
            log.exception("%s is not all removed", self.launch.topology)
        shutil.rmtree(self.staging, ignore_errors=True)
