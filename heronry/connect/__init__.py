"""Sources and sinks ready to use in topologies whose state is kept: each record takes effect once.

Sources keep their positions in ``self.keyed``, one for each split; sinks write in two phases, or so that writing twice
changes nothing. They are plain components: configure them with ``config`` in ``spec``, or derive from them.
``docs/reference/connectors.md`` lists them with their keys.
"""
