"""Metrics of processes and their delivery to the metrics manager: totals, sketches, reports."""
