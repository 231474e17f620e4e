"""Example topologies and programs. Each file can be submitted as it is."""
