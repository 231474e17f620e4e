"""API server of one cluster: accepts topologies over HTTP and drives the scheduler that runs their containers."""
