"""From the user's file to what a cluster can run: find the topology, ask for its definition, stage and ship the
code.
"""
