"""Accepts submissions for a cluster, keeps the uploads, and drives the scheduler that runs the containers."""
