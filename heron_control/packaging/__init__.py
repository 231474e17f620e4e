"""Packaging: find the user's topology, ask for its definition, stage and ship its code."""
