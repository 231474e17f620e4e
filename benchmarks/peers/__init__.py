"""The same workloads on other engines: ``make bench-peers``."""
