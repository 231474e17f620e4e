"""``python -m heron_scheduler``: the scheduler of one topology on the local cluster."""

from heron_scheduler.shell.main import main

main()
