"""Placed topologies of the cluster, around submit and kill (``heron_control.submission``).

The API server remembers launch and secret of each placed topology, because containers prove the secret to fetch
their code, and deletes packages that no topology refers to.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from heron_apiserver.access import secrets_equal
from heron_apiserver.packages import PackageRepository
from heron_apiserver.submit_request import SubmitRequest
from heron_control.inspection.inspector import Inspector
from heron_control.schedulers.scheduler import Scheduler
from heron_control.schedulers.topology_folder import SECRET_FILE, identity_in
from heron_control.submission.previous_version import describe_changes, submission_of, with_upgrade_checkpoint
from heron_control.submission.service import SubmissionService
from heron_control.submission.submission import ClusterConfig, StartFrom, StateHandover, Submission
from heron_runtime.failures import Failure, NotFound
from heron_runtime.launch import Launch
from heron_runtime.model.checkpoints import keeps_state
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.net.handshake import prove_download
from heron_runtime.net.identity import Identity
from heron_runtime.state.store import StateStore

PREVIOUS_SECONDS = 3600.0  # longest time in which a replacement can be rolled back
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlacedTopology:
    """A running topology: launch, secret for package downloads, and key."""

    launch: Launch
    secret: str = field(repr=False)
    identity: Identity = field(repr=False)


@dataclass(frozen=True, slots=True)
class PreviousVersion:
    """Version that a replacement has ended. It can be started again ``until`` this time of the monotonic clock."""

    submission: Submission
    until: float


class PlacedTopologies:
    """Topologies of one cluster. Thread-safe."""

    def __init__(
        self,
        config: ClusterConfig,
        store: StateStore,
        scheduler: Scheduler,
        packages: PackageRepository,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self.config = config
        self.packages = packages
        self.inspector = Inspector(store, config.homes)
        self.submissions = SubmissionService(config, store, scheduler, self._placed, self._removed)
        self._topologies: dict[str, PlacedTopology] = {}  # by topology id
        self._previous: dict[tuple[str, str, str], PreviousVersion] = {}  # by name, role and environment

    def submit(self, fields: SubmitRequest, definition: TopologyDefinition, packing: PackingPlan, package: str) -> bool:
        """Submit a topology. Atomic.

        Args:
            fields: checked fields of the request.
            definition: definition of the topology.
            packing: packing plan of the definition.
            package: digest of the code, held by the caller.

        Returns:
            False if this very submission is running already.

        Raises:
            NotFound: the package does not exist.
            Failure: see ``SubmissionService.submit``.
        """
        path = self.packages.path(package)
        if path is None:
            raise NotFound(f"package {package}: not found", "Send it with the request as the file `topology`.")
        submission = Submission(
            definition, packing, path, fields.role, fields.environ, fields.user or fields.role, fields.state,
            fields.settings, package,
            StartFrom(fields.from_checkpoint, fields.allow_dropped_state) if fields.from_checkpoint else None,
            None if fields.without_state else StateHandover(fields.allow_dropped_state, fields.timeout_seconds),
        )  # fmt: skip

        def note(what: str) -> None:
            log.info("%s: %s", definition.name, what)  # shows the progress if this process ends meanwhile

        names = fields.name, fields.role, fields.environ
        if fields.replace and (before := self._running_version(*names, other_than=definition.id)):
            older, self._previous[names] = self._previous.get(names), before
            if older is not None:
                self.release(older.submission.package_digest)
        return self.submissions.submit(submission, replace=fields.replace, note=note) is not None

    def describe_replacement(self, fields: SubmitRequest, definition: TopologyDefinition) -> list[str]:
        """Return the parallelism and settings of the running version that a replacement changes."""
        try:
            record = self.inspector.find(fields.name, fields.role, fields.environ)
        except Failure:
            return []  # the submit reports it
        return describe_changes(record.definition, definition) if record.definition.id != definition.id else []

    def roll_back(self, name: str, role: str, environ: str) -> tuple[str, str]:
        """Start the version again that the last replacement has ended. The new version must have been killed.

        Returns:
            The topology id, and the checkpoint that it starts from, "" without state.

        Raises:
            NotFound: The previous version is not known any more, or its state was discarded.
            Failure: see ``SubmissionService.submit``.
        """
        kept = self._previous.get((name, role, environ))
        if kept is None or kept.until <= self._clock():
            raise NotFound(f"{name}: the previous version is unknown", "Submit it again.")
        before = kept.submission
        rows = self.submissions.checkpoints.rows(name, role, environ) if keeps_state(before.definition.config) else []
        again = with_upgrade_checkpoint(before, f"{self.config.cluster}/{role}/{environ}", rows)
        if again is None:
            raise NotFound(f"{name}: the state of the previous version was discarded", "Submit it again.")
        with self.packages.hold(again.package_digest):
            package = self.packages.path(again.package_digest)
            if package is None:
                raise NotFound(f"{name}: the package of the previous version was deleted", "Submit it again.")
            self.submissions.submit(replace(again, package=package))
        self._previous.pop((name, role, environ), None)
        return again.definition.id, again.start.reference if again.start is not None else ""

    def _running_version(self, name: str, role: str, environ: str, *, other_than: str) -> PreviousVersion | None:
        try:
            record = self.inspector.find(name, role, environ)
        except Failure:
            return None  # the submit reports it
        placed = self._topologies.get(record.definition.id)
        package = self.packages.path(placed.launch.package_digest) if placed is not None else None
        if placed is None or package is None or record.definition.id == other_than:
            return None
        until = self._clock() + PREVIOUS_SECONDS
        return PreviousVersion(submission_of(record, placed.launch, package), until)

    def _is_needed(self, package: str) -> bool:
        """Return True if a topology, or a version to which a user may return, refers to the package."""
        now = self._clock()
        previous = [kept for kept in list(self._previous.values()) if kept.until > now]
        return any(launch.package_digest == package for launch in self.launches.values()) or any(
            kept.submission.package_digest == package for kept in previous
        )

    def forget_expired(self) -> None:
        """Forget the versions to which a user can no longer return, and delete packages that only they need."""
        now = self._clock()
        for names, kept in list(self._previous.items()):
            if kept.until <= now and self._previous.get(names) is kept:
                del self._previous[names]
                self.release(kept.submission.package_digest)

    def release(self, package: str) -> None:
        """Delete a package, unless a topology refers to it or a request holds it."""
        if package and not self._is_needed(package):
            self.packages.remove_unless_held(package)

    @property
    def launches(self) -> dict[str, Launch]:
        """Return the launches of all placed topologies by topology id."""
        return {key: placed.launch for key, placed in self._topologies.copy().items()}

    def verify_download_proof(self, topology_id: str, digest: str, nonce: str, proof: str) -> bool:
        """Check a proof of the topology's secret, in equal time for unknown topologies."""
        placed = self._topologies.get(topology_id)
        expected = prove_download(placed.secret if placed else "0" * 64, topology_id, digest, nonce)
        return secrets_equal(proof, expected) and placed is not None

    def find_package_digest(self, topology_id: str) -> str:
        """Return the digest of a topology's code, or an empty string."""
        placed = self._topologies.get(topology_id)
        return placed.launch.package_digest if placed else ""

    def find_identity(self, topology_id: str) -> Identity | None:
        """Return a topology's key, or None."""
        placed = self._topologies.get(topology_id)
        return placed.identity if placed else None

    def _placed(self, launch: Launch, folder: Path) -> None:
        secret = (folder / SECRET_FILE).read_text().strip()
        self._topologies[launch.topology_id] = PlacedTopology(launch, secret, identity_in(folder, launch.topology_id))

    def _removed(self, launch: Launch) -> None:
        self._topologies.pop(launch.topology_id, None)
        self.release(launch.package_digest)
