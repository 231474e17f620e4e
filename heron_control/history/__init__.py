"""The history of topologies, read: rows by DuckDB, and what they advise."""
