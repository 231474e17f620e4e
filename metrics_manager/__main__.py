"""Entry point of ``python -m metrics_manager``: runs the metrics manager of one container until it is stopped."""

from __future__ import annotations

from heron_runtime.model.settings import Keys, setting
from heron_runtime.process import parse_arguments, run_loop, run_until_stopped, set_up_process
from metrics_manager.process import MetricsManager


def main() -> None:
    """Run the process."""
    arguments, _ = parse_arguments("metrics_manager")
    launch = arguments.launch
    title = f"heron:{launch.topology}:metrics_manager-{arguments.container}"
    set_up_process(title, setting(launch.settings, Keys.HERON_LOGGING_LEVEL))
    run_loop(run_until_stopped(MetricsManager(launch, arguments.container), arguments))


if __name__ == "__main__":
    main()
