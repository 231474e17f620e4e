"""The same five programs on Heronry's three engines, and by hand in PySpark, DuckDB and polars: ``python -m benchmarks.engines``."""
