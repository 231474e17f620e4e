"""Resources that all requests of an API server share."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from heron_apiserver.access import DownloadNonces
from heron_apiserver.audit import AuditLog
from heron_apiserver.maintenance import Maintenance
from heron_apiserver.package_store import PackageStore
from heron_apiserver.packages import PackageRepository
from heron_apiserver.request_log import RequestLog
from heron_apiserver.self_metrics import ApiServerMetrics
from heron_apiserver.tokens import TokenBook
from heron_apiserver.topologies import PlacedTopologies
from heron_control.packaging.archive import ArchiveLimits
from heron_control.packaging.package import LIMITS
from heron_control.packaging.requirements import TargetPlatform, this_interpreter
from heron_control.schedulers.scheduler import Scheduler
from heron_control.submission.submission import ClusterConfig
from heron_control.web.tokens import Throttle
from heron_runtime.state.store import StateStore


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """Limits of uploads.

    Attributes:
        package_bytes: largest package as sent, compressed.
        unpacked: limits of the unpacked package.
        uploads: uploads at a time.
        upload_seconds: longest duration of one upload.
        idle_seconds: longest pause within an upload.
    """

    package_bytes: int = 512 << 20
    unpacked: ArchiveLimits = field(default_factory=lambda: LIMITS)
    uploads: int = 4
    upload_seconds: float = 900.0
    idle_seconds: float = 30.0


class ApiServer:
    """Resources of an API server. ``start`` and ``stop`` run on the event loop that serves."""

    def __init__(
        self,
        config: ClusterConfig,
        store: StateStore,
        scheduler: Scheduler,
        scheduler_name: str,
        tokens: TokenBook,
        upload_limits: UploadLimits | None = None,
        *,
        target: TargetPlatform | None = None,
        advertise: str = "127.0.0.1",
        package_store: PackageStore | None = None,
    ) -> None:
        self.upload_limits = upload_limits or UploadLimits()
        self.tokens = tokens
        self.scheduler_name = scheduler_name
        self.target = target or this_interpreter()
        self.packages = PackageRepository(config.home, self.upload_limits.unpacked, package_store)
        self.topologies = PlacedTopologies(config, store, scheduler, self.packages)
        self.request_log = RequestLog(config.home)
        self.audit = AuditLog(config.home / "audit.jsonl")
        self.throttle = Throttle()
        self.download_nonces = DownloadNonces(secrets.token_bytes(32))
        self.metrics = ApiServerMetrics()
        self.uploads = 0
        self.maintenance = Maintenance(
            store, scheduler, self.topologies, self.request_log, self.audit, self.metrics, advertise
        )

    async def start(self) -> None:
        """Start the background tasks without waiting for the store."""
        self.metrics.lag.start()
        await self.maintenance.start()

    async def stop(self) -> None:
        """Stop the background tasks. Topologies keep running."""
        self.metrics.lag.stop()
        await self.maintenance.stop()
        self.audit.close()
