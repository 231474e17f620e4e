"""The facts for ``judge_slurm``: by Slurm's own commands, as the cluster ``slurm`` uses them; nothing is submitted."""

from __future__ import annotations

import shutil
import socket
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from heron_cli.address import SLURM
from heron_cli.diagnosis.judge_slurm import Place, SlurmFacts
from heron_cli.home import Home
from heron_control.schedulers.slurm_client import NEEDED, SlurmClient, SlurmError
from heron_control.schedulers.slurm_plan import strangers
from heron_runtime.model.settings import Keys
from heron_runtime.state.filesystem import network_file_system


def look(home: Home) -> SlurmFacts:
    """Raises Failure for settings of the home that cannot be read."""
    home.prepare()
    settings = home.read_config().get(SLURM, {})
    base = SlurmFacts(
        commands=NEEDED,
        partition=str(settings.get(Keys.HERON_SLURM_PARTITION.name) or ""),
        store=urlsplit(home.store_of(SLURM).url).scheme,
    )
    lacking = tuple(name for name in NEEDED if shutil.which(name) is None)
    if lacking:
        return replace(base, lacking=lacking)
    try:
        site = SlurmClient().examine()
    except SlurmError as error:
        return replace(base, trouble=error.message)
    hosts = {node.host for node in site.nodes}
    places = (("home", home.root), ("environment", Path(sys.prefix)))
    return replace(
        base, version=site.version, tracking=site.tracking, refused=site.refused, nodes=site.nodes,
        elsewhere=tuple(strangers(hosts, socket.gethostname())),
        places=tuple(Place(what, str(path), network_file_system(path) or "") for what, path in places),
    )  # fmt: skip
