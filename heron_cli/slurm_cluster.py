"""The ``slurm`` cluster: topologies of this user as jobs in the queue that this machine's sbatch knows.

Like ``local`` it needs no api server: folders, settings and state are the home's, which the nodes see, too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from heron_cli.address import SLURM
from heron_cli.console import say
from heron_cli.home import Home
from heron_cli.local_cluster import LocalCluster
from heron_control.progress import Progress
from heron_control.submission.submission import Submission
from heron_runtime.model.records import TopologyRecord
from heron_runtime.state import topologies
from heron_runtime.state.store import StateStore

if TYPE_CHECKING:
    from heron_control.inspection.inspector import Inspector
    from heron_control.packing.update import PlannedUpdate
    from heron_control.schedulers.slurm import SlurmScheduler
    from heron_control.submission.service import SubmissionService

MOST_SUBMITS = 3  # of one job that a controller loses again and again


class SlurmCluster(LocalCluster):
    """See ``heron_cli.clusters.Cluster``. Not thread-safe."""

    name = SLURM

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self._made: SlurmScheduler | None = None

    @property
    def _scheduler(self) -> SlurmScheduler:
        """One, which knows what it has seen of the queue."""
        from heron_control.schedulers.slurm import SlurmScheduler

        self._made = self._made or SlurmScheduler()
        return self._made

    def _inspector(self, store: StateStore) -> Inspector:
        from heron_control.inspection.inspector import Inspector

        return Inspector(store, self._config.homes, self._scheduler.status)

    def _service(self, store: StateStore) -> SubmissionService:
        from heron_control.submission.service import SubmissionService

        return SubmissionService(self._config, store, self._scheduler)

    def submit(self, submission: Submission, progress: Progress, *, replace: bool = False) -> Callable[[], bool]:
        """Stage the package, write the state, submit the job. The question submits it again where it is lost."""
        name = submission.definition.name
        with self.session() as store:
            self._service(store).submit(submission, progress, replace=replace, note=say)
            home = topologies.read_topology(store, name).execution.home
        return JobKeeper(self._scheduler, Path(home)).keep

    def _check_update(self, record: TopologyRecord, planned: PlannedUpdate) -> None:
        from heron_control.schedulers.slurm import allocation_in
        from heron_control.schedulers.slurm_plan import check_room

        allocation = allocation_in(Path(record.execution.home))
        if allocation is not None:
            definition, after = planned.after
            check_room(allocation, record.packing, after, definition.config)


class JobKeeper:
    """Sees to it that a job that has just been submitted is not lost. A controller that dies within the second it keeps
    its state in memory alone (StateSaveLocation is written every five) comes back without the job."""

    def __init__(self, scheduler: SlurmScheduler, folder: Path) -> None:
        self._scheduler = scheduler
        self._folder = folder
        self._submits = 1

    def keep(self) -> bool:
        """False when the job has ended, or is lost too often."""
        from heron_control.schedulers.slurm_client import SlurmError
        from heron_control.schedulers.topology_folder import LAUNCH_FILE, load_launch

        launch = load_launch(self._folder)
        if launch is None:
            return False
        try:
            job = self._scheduler.look(launch)
            if job is None and self._submits < MOST_SUBMITS:
                self._submits += 1
                self._scheduler.start(launch, self._folder / LAUNCH_FILE)
                return True
        except SlurmError:
            return True  # what it is will be seen when the controller answers
        return job is not None and not job.over
