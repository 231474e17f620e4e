"""Production gateways and the production server of instances on simulated time: `tests/sim/README.md`."""
