"""Metrics of processes and their way to the metrics manager: totals, sketches, reports."""
