"""Looking at topologies that run: what the ``heron`` command, the tracker and the api server say of them.

``questions`` says what their processes are asked, ``asking`` asks and waits, ``topology_status`` and ``metrics_table``
make of the answers what is shown, and ``log_reading`` reads the ends of logs. Nothing here changes anything.
"""
