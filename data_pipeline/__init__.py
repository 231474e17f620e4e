"""Streamlet programs on Apache Spark (PySpark): the programs that run online, applied to historical data."""
