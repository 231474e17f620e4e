"""Control plane: packages, packs, submits, updates, kills and inspects topologies."""
