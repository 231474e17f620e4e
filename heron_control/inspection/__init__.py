"""Inspection of running topologies for the ``heron`` command, the tracker and the API server.

``questions`` defines requests to processes, ``asking`` sends them, ``topology_status`` and ``metrics_table`` turn the
answers into what is shown, and ``log_reading`` reads the ends of logs.
"""
