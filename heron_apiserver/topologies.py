"""Placed topologies of the cluster, around submit and kill (``heron_control.submission``).

The API server remembers launch and secret of each placed topology, because containers prove the secret to fetch
their code, and deletes packages that no topology refers to.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

from heron_apiserver.access import secrets_equal
from heron_apiserver.packages import PackageRepository
from heron_apiserver.submit_request import SubmitRequest
from heron_control.inspection.inspector import Inspector
from heron_control.schedulers.scheduler import Scheduler
from heron_control.schedulers.topology_folder import SECRET_FILE, identity_in
from heron_control.submission.service import SubmissionService
from heron_control.submission.submission import ClusterConfig, StartFrom, StateHandover, Submission
from heron_runtime.failures import NotFound
from heron_runtime.launch import Launch
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.topology import TopologyDefinition
from heron_runtime.net.handshake import prove_download
from heron_runtime.net.identity import Identity
from heron_runtime.state.store import StateStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlacedTopology:
    """A running topology: launch, secret for package downloads, and key."""

    launch: Launch
    secret: str = field(repr=False)
    identity: Identity = field(repr=False)


class PlacedTopologies:
    """Topologies of one cluster. Thread-safe."""

    def __init__(
        self, config: ClusterConfig, store: StateStore, scheduler: Scheduler, packages: PackageRepository
    ) -> None:
        self.config = config
        self.packages = packages
        self.inspector = Inspector(store, config.homes)
        self.submissions = SubmissionService(config, store, scheduler, self._placed, self._removed)
        self._topologies: dict[str, PlacedTopology] = {}  # by topology id

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

        return self.submissions.submit(submission, replace=fields.replace, note=note) is not None

    def release(self, package: str) -> None:
        """Delete a package, unless a topology refers to it or a request holds it."""
        if package and not any(launch.package_digest == package for launch in self.launches.values()):
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
