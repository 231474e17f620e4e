"""The first program in a container that a scheduler of containers has made: it makes ready what heron_container
expects, and becomes it.

``python -m heron_container.bootstrap --launch FILE --container N``. The scheduler has put ``launch.json``, the secret
and, if there is one, the store's credential into a folder of this container alone, each time before it starts. The
volume around it is shared by the topology's containers and outlives them: there are the logs, the saved plans and the
user's code. Code that is there already is not fetched again, so that a container starts without the api server;
where it is not, the api server is asked until it answers.

It begins as root with the three capabilities that it takes to change users, becomes ``--user`` before it opens
anything, and keeps them where instances run: heron_container has user code run as another user
(``heron_runtime.code_user``). To that user it opens the volume, for what it writes there, and its code. What else is
there stays its own.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from pathlib import Path

from heron_container.shell.fetching import FetchError, Refused, fetch_package
from heron_control.schedulers.docker_plan import SHARED_PATH, VOLUME_PATH
from heron_control.schedulers.identity import process_title
from heron_runtime.checkpoint_files import CHECKPOINTS
from heron_runtime.code_user import PASSED_THROUGH, WRITTEN_TO, CodeUser, code_user
from heron_runtime.failures import Failure
from heron_runtime.files import replace_file
from heron_runtime.launch import Launch
from heron_runtime.linux import CHANGE_USER, change_user
from heron_runtime.model.backoff import BackoffPolicy
from heron_runtime.model.ids import container_name, holds_master
from heron_runtime.process import set_up_process
from heron_runtime.spawn import python_command
from heronry.api.errors import PackageError

EXIT_REFUSED = 65
PATIENCE = BackoffPolicy(500, 10_000, 60_000)
log = logging.getLogger("heron_container")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m heron_container.bootstrap")
    parser.add_argument("--launch", required=True, type=Path)
    parser.add_argument("--container", required=True, type=int)
    parser.add_argument("--user", default="", help="who to be, where this is root")
    options = parser.parse_args()
    if options.user and os.geteuid() == 0:
        user = CodeUser.named(options.user)
        change_user(user.uid, user.gid, user.groups, 0 if holds_master(options.container) else CHANGE_USER)
    launch = Launch.load(options.launch)
    set_up_process(process_title(launch.topology, container_name(options.container)))
    try:
        prepare(launch, options.launch.parent / "secret")
    except (Refused, PackageError, Failure, OSError) as error:
        log.error("cannot start: %s", error)
        sys.exit(EXIT_REFUSED)
    number = str(options.container)
    command = python_command("heron_container", "--launch", str(options.launch), "--container", number)
    os.execv(command[0], [*command, "--own-log", "--echo-log"])


def prepare(launch: Launch, secret: Path) -> None:
    """Folders, secret, package. Raises Refused, PackageError, UsageError, OSError."""
    for folder in (Path(launch.home), launch.log_dir, launch.metrics_dir, Path(launch.runtime_dir)):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(launch.secret_file, secret.read_bytes(), 0o400)  # all containers of the topology look for it there
    user = code_user(launch.settings)
    _fetch_patiently(launch)
    if user is not None:
        user.may_read_all(launch.package_dir)
        user.share(Path(launch.home), PASSED_THROUGH)
        user.open_checkpoints(Path(launch.home, CHECKPOINTS))
        user.share(Path(VOLUME_PATH), WRITTEN_TO)  # the working folder
        # What nodes share, unless user code has made something of that name here.
        user.share_own_folder(Path(SHARED_PATH), WRITTEN_TO)


def _fetch_patiently(launch: Launch) -> None:
    attempts = 0
    while True:
        try:
            return fetch_package(launch)
        except FetchError as error:
            attempts += 1
            delay = PATIENCE.delay_ms(attempts + 1) / 1000
            log.warning("no package yet: %s; trying again in %.1f s", error, delay)
            time.sleep(delay)


if __name__ == "__main__":
    main()
