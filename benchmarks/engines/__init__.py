"""Benchmark of five programs on Heronry's three engines and by hand: ``python -m benchmarks.engines``."""
