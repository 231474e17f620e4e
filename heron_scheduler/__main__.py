"""Entry point of the scheduler of one topology on the local cluster or in a Slurm job."""

from heron_scheduler.process import main

main()
