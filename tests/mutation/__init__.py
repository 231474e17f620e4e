"""Mutation tests of the cores: `docs/development/mutations.md`."""
