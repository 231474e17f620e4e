"""``python -m topology_master``: one topology master, acting or standing by, until the topology ends."""

from __future__ import annotations

from heron_runtime.model.settings import Keys, setting
from heron_runtime.process import parse_arguments, run_loop, run_until_stopped, set_up_process
from heron_runtime.state import store_of
from topology_master.shell.process import TopologyMasterProcess


def main() -> None:
    """Entry point."""
    arguments, _ = parse_arguments("topology_master")
    launch = arguments.launch
    name = f"topology_master-{arguments.container}"
    set_up_process(f"heron:{launch.topology}:{name}", setting(launch.settings, Keys.HERON_LOGGING_LEVEL))
    master = TopologyMasterProcess(launch, store_of(launch), arguments.container)
    run_loop(run_until_stopped(master, arguments))


if __name__ == "__main__":
    main()
