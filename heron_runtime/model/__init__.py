"""Frozen values shared by all processes: ids, definitions, plans, causes. No protobuf, no I/O, no clock."""
