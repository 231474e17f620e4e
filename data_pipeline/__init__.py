"""Programs on Apache Spark (PySpark): the same ones that run online, over history."""
