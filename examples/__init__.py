"""Topologies to read, run and start from; each file is submitted as it is."""
