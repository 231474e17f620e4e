"""Simulation of checkpoints, restores and rescaling under faults, with the production cores of master and task.

Theory of operation. Tasks send over channels that may break, and exchange messages with the master that may be lost,
duplicated or delayed. Processes die, stall, or are cut off and continue after a successor has started; storage fails;
masters change. The program has splits, a diamond, keys whose entries are deleted again, and a two-phase sink. Its
result does not depend on the order in which tuples meet. At each complete checkpoint, state and output must equal those
of a sequential reference that has read each split up to its position; at the end everything must have been read. The
owner updates the topology and returns to older checkpoints. Each return begins a new history, and only output that
belongs to this history counts (``outside.py``).
"""
