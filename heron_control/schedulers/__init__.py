"""Schedulers, which run the containers of a topology.

``scheduler.py`` defines the protocol. ``local.py``, ``docker.py``, ``swarm.py``, ``k8s.py`` and ``slurm.py`` implement
it. The other modules are shared with ``heron_container`` and ``heron_scheduler``: commands, log files, identity of
processes, presence in the state store.
"""
