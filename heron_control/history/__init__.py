"""Reading of topologies' history: rows by DuckDB, and scaling advice."""
