"""Frozen values that every process shares: ids, definitions, plans, causes. No protobuf, no I/O, no clock."""
