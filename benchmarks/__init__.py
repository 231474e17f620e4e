"""Benchmarks of Heronry: ``python -m benchmarks --help``."""
