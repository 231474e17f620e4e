"""Benchmarks of the same workloads on other engines: ``make bench-peers``."""
