"""Submission, update and end of topologies, for the command line and the API server."""
