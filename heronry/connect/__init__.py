"""Sources and sinks for topologies with checkpointed state: each record takes effect once.

Sources keep their positions in ``self.keyed``, one for each split. Sinks write in two phases, or idempotently. They are
ordinary components: configure them with ``config`` in ``spec``, or derive from them.
``docs/reference/connectors.md`` lists them with their options.
"""
