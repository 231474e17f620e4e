"""Measuring Heronry: ``python -m benchmarks --help``."""
