"""Inspection of running topologies for the ``heron`` command, the tracker and the API server.

``process_requests`` defines requests to processes, ``inspector`` sends them, ``topology_status`` and ``metrics_table``
turn the answers into what is shown, and ``log_reader`` reads the ends of logs.
"""
