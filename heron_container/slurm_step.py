"""First program in a step of a Slurm job: completes the launch for its node and becomes heron_container.

``python -m heron_container.slurm_step --launch FILE --container N``. ``FILE`` lies in the folder that all nodes share.
The completed launch of this container is saved in its runtime folder, which heron_container removes at its end.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from heron_control.schedulers.slurm_node import launch_on, node_name, read_nodes, settle
from heron_runtime.failures import Failure
from heron_runtime.launch import Launch
from heron_runtime.spawn import python_command

EXIT_REFUSED = 65
OWN_LAUNCH = "container.json"  # launch.json is for instances that run as another user


def main() -> None:
    """Save the launch for this node and become heron_container."""
    parser = argparse.ArgumentParser(prog="python -m heron_container.slurm_step")
    parser.add_argument("--launch", required=True, type=Path)
    parser.add_argument("--container", required=True, type=int)
    options = parser.parse_args()
    number: int = options.container
    try:
        launch = Launch.load(options.launch)
        own = launch_on(launch, read_nodes(options.launch.parent), node_name(), number)
        settle(own)
        file = Path(own.runtime_dir, OWN_LAUNCH)
        own.save(file)
    except (Failure, OSError, ValueError) as error:
        sys.stderr.write(f"container {number} cannot start here: {error}\n")
        sys.exit(EXIT_REFUSED)
    command = python_command("heron_container", "--launch", str(file), "--container", str(number), "--own-log")
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
