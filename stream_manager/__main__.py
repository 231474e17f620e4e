"""``python -m stream_manager --launch FILE --container N --slot K --lifeline FD``."""

from __future__ import annotations

import sys

from heron_runtime.model.settings import Keys, setting
from heron_runtime.process import (
    EXIT_REPLACED,
    parse_arguments,
    run_loop,
    run_until_stopped,
    set_scheduling,
    set_up_process,
)
from stream_manager.shell.process import StreamManagerProcess


def main() -> None:
    """The process."""
    arguments, _ = parse_arguments("stream_manager")
    launch = arguments.launch
    level = setting(launch.settings, Keys.HERON_LOGGING_LEVEL)
    set_up_process(f"heron:{launch.topology}:stream_manager-{arguments.container}", level)
    set_scheduling(setting(launch.settings, Keys.HERON_PROCESS_SCHEDULING))
    process = StreamManagerProcess(launch, arguments.container)
    run_loop(run_until_stopped(process, arguments))
    sys.exit(EXIT_REPLACED if process.replaced() else 0)


if __name__ == "__main__":
    main()
