"""Checkpoints, restores and rescaling under faults: the production cores of master and task on a simulated network.

Theory of operation. Tasks talk over channels that may break, with the master over messages that may be lost, doubled or
late; processes die, stall, or are cut off and go on while another one has taken their place; storage fails; masters
change. The program has splits, a diamond, keys whose entries are deleted again, and a two-phase sink, and its result
does not depend on the order in which tuples meet. So at each complete checkpoint state and output must equal those of a
sequential reference that has read each split up to its position, and at the end everything must have been read. The
owner updates, and goes back to older checkpoints: then a new history begins, and of output only what belongs to it
counts (``outside.py``).
"""
