"""Production gateways and the production server of instances on a loop whose time is simulated: `tests/sim/README.md`."""
