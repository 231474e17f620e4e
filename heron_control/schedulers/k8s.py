"""The ``k8s`` cluster: each container of a topology is a Pod of a Kubernetes cluster, on any of its nodes.

The API server runs in the cluster (``deploy/kubernetes.yml``), or anywhere with a kubeconfig. It decides which
containers to start, stop and restart as on a single Docker engine (``docker``). There are two differences: the form of
a container (``kubernetes_objects``), and the user. Heronry's processes and user code run as the same user without any
capability, as the level "restricted" of Kubernetes' Pod security standards requires.

A container writes to the disk of its node, and these files are removed with it. If the operator provides a claim that
all nodes can mount (HERONRY_K8S_CLAIM), each topology has a folder in it. Without such a claim, a topology that keeps
state is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from heron_control.schedulers.docker import DockerOptions, DockerScheduler
from heron_control.schedulers.engine import ContainerEngine
from heron_control.schedulers.grants import read_granted
from heron_control.schedulers.kubernetes_objects import PodPlacement, is_name_server
from heron_control.schedulers.scheduler import SchedulerContext, SchedulerError
from heron_control.schedulers.shared_storage import SharedStorage, check_state
from heron_control.schedulers.topology_folder import Homes
from heron_runtime.failures import NotAllowed
from heron_runtime.launch import Launch
from heron_runtime.model.settings import Keys, setting
from heron_runtime.state.store import StateStore

_CURE = "Start the api server with HERONRY_K8S_CLAIM and HERONRY_K8S_STORAGE (docs/how-to/deploy/kubernetes.md)"


@dataclass(frozen=True, slots=True)
class KubernetesOptions(DockerOptions):
    """Options of the Kubernetes scheduler.

    ``placing`` is where Pods go. ``storage`` is the folder where this process mounts the claim ``placing.claim``.
    """

    placing: PodPlacement = field(default_factory=PodPlacement)
    storage: Path | None = None

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> KubernetesOptions:
        """Read the options from the environment.

        Besides the variables of the Docker scheduler these are HERONRY_K8S_NAMESPACE, HERONRY_K8S_NODES (labels),
        HERONRY_K8S_PULL_SECRET, HERONRY_K8S_REACH (address blocks), HERONRY_K8S_DNS (name servers:
        NAMESPACE/LABEL=VALUE or address blocks), HERONRY_K8S_CLAIM and HERONRY_K8S_STORAGE. Lists are
        separated by commas.

        Raises:
            SchedulerError: A label has no value, a name server is invalid, the storage is not an existing folder with
                an absolute path, or only one of claim and storage is given.
        """
        docker = DockerOptions.of_environment(environment)
        labels = [part.partition("=") for part in _parts(environment.get("HERONRY_K8S_NODES", ""))]
        if wrong := [key for key, sign, _ in labels if not sign]:
            raise SchedulerError(f"HERONRY_K8S_NODES: {wrong[0]!r} is not of the form label=value, as disk=ssd")
        placing = PodPlacement(
            environment.get("HERONRY_K8S_NAMESPACE", ""),
            tuple((key, value) for key, _, value in labels),
            environment.get("HERONRY_K8S_PULL_SECRET", ""),
            tuple(_parts(environment.get("HERONRY_K8S_REACH", ""))),
            environment.get("HERONRY_K8S_CLAIM", ""),
            tuple(_parts(environment.get("HERONRY_K8S_DNS", ""))) or PodPlacement().dns,
        )
        if unknown := [text for text in placing.dns if not is_name_server(text)]:
            raise SchedulerError(f"HERONRY_K8S_DNS: {unknown[0]!r} is not NAMESPACE/LABEL=VALUE or an address block")
        storage = Path(storage_path) if (storage_path := environment.get("HERONRY_K8S_STORAGE", "")) else None
        if storage is not None and not (storage.is_absolute() and storage.is_dir()):
            raise SchedulerError(f"HERONRY_K8S_STORAGE: {storage} is not a directory; mount the claim there")
        if (storage is None) != (not placing.claim):
            raise SchedulerError("HERONRY_K8S_CLAIM and HERONRY_K8S_STORAGE: give both, or none")
        return cls(docker.project, docker.image, docker.api_url, placing=placing, storage=storage)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


class KubernetesScheduler(DockerScheduler):
    """Implementation of ``heron_control.schedulers.scheduler.Scheduler`` and ``WatchingScheduler`` for Kubernetes."""

    kind = "k8s"

    def __init__(
        self, store: StateStore, homes: Homes, options: KubernetesOptions, engine: ContainerEngine | None = None
    ) -> None:
        super().__init__(store, homes, options, engine or _engine(options))
        self._storage = options.storage

    def prepare(self, launch: Launch, folder: Path, package: Path) -> Launch:
        """Prepare as on Docker, but with a single user, and without checkpoints on a node's own disk.

        Raises:
            NotAllowed: The settings name a user for user code, or checkpoints would not be on shared storage.
        """
        name = Keys.HERON_USER_CODE_USER.name
        if setting(launch.settings, Keys.HERON_USER_CODE_USER) is not None:
            raise NotAllowed(f"{name}: a Pod has one user, without a right to become another", f"Leave out {name}.")
        granted = read_granted(folder)
        if granted is not None:
            check_state(granted.definition.config, self._storage, _CURE)
        prepared = super().prepare(launch, folder, package)
        settings = {key: value for key, value in prepared.settings.items() if key != name}
        return replace(prepared, settings=settings)

    def hold(self, launch: Launch) -> None:
        """Raise NotAllowed: the log files are on the nodes."""
        raise NotAllowed(
            "cluster k8s keeps no log files of a topology that is killed: they are on its nodes, and go with its Pods",
            "Read them before with heron logs, or kill it without --keep-logs.",
        )

    def save_logs(self, launch: Launch, folder: Path) -> None:
        """Raise NotAllowed, like ``hold``, which is called first."""
        self.hold(launch)


def _engine(options: KubernetesOptions) -> ContainerEngine:
    """Return the engine for these options.

    Raises:
        SchedulerError: The Kubernetes client is not installed.
        EngineError: The configuration of a cluster is missing.
    """
    try:
        from heron_control.schedulers.kubernetes_client import own_namespace
        from heron_control.schedulers.kubernetes_engine import KubernetesEngine
    except ImportError as error:
        raise SchedulerError(
            f"the scheduler k8s needs Kubernetes' client: {error}; pip install 'heronry[kubernetes]', or build the "
            "image with HERONRY_EXTRAS=archive,kubernetes"
        ) from error
    placing = replace(options.placing, namespace=options.placing.namespace or own_namespace())
    storage = SharedStorage(options.storage, options.project) if options.storage is not None else None
    return KubernetesEngine(options.project, placing, storage)


def scheduler_of(context: SchedulerContext) -> KubernetesScheduler:
    """Return the scheduler for an API server."""
    return KubernetesScheduler(context.store, context.homes, KubernetesOptions.of_environment(context.environment))
