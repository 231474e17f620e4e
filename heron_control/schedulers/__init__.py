"""Schedulers: what runs the containers of a topology. One protocol (``scheduler.py``), ``local.py`` and those that
follow.

The other modules are what ``heron_container`` and ``heron_scheduler`` share: commands, log files, identity of
processes, presence in the state store.
"""
