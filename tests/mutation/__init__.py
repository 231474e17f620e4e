"""Mutants of the cores, and whether the unit tests notice them: `docs/development/mutations.md`."""
