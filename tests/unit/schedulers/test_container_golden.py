"""Translations of one container, compared with recorded ones: a change of what engines get is seen in a review.

``HERONRY_RECORD=1`` writes the file again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from heron_control.schedulers import docker_objects, kubernetes_objects, swarm_objects
from heron_runtime.model.plan import Resources
from heron_runtime.model.settings import MiB
from tests.unit.schedulers.test_container_spec import spec
from tests.unit.schedulers.test_kubernetes_objects import FILES, PLACING

RECORDED = Path(__file__).parent / "golden_containers.json"


def test_translations_are_the_recorded_ones() -> None:
    master = spec(0, Resources(1.0, 512 * MiB), spread=2)
    secrets = {file: f"id-{file}" for file in FILES}
    storage, constraints = "/nfs/t", ["node.labels.disk==ssd"]
    translated = {
        "docker": docker_objects.container_body(master),
        "swarm": {
            "service": swarm_objects.service_template(
                master, "sha256:1", secrets, constraints=constraints, storage=storage
            ),
            "labels": swarm_objects.service_labels(master),
            "secret": swarm_objects.secret_labels(master),
        },
        "kubernetes": {
            "pod": kubernetes_objects.pod_of(master, sorted(FILES), PLACING, 2),
            "record": kubernetes_objects.record_of(master, FILES, PLACING, 2)["metadata"],
            "secret": kubernetes_objects.secret_of(master, FILES, PLACING),
        },
    }
    if os.environ.get("HERONRY_RECORD"):
        RECORDED.write_text(json.dumps(translated, indent=1, sort_keys=True) + "\n")
    assert json.loads(json.dumps(translated)) == json.loads(RECORDED.read_text())
