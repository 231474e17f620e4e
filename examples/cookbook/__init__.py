"""The programs of ``docs/cookbook.md``; each file is submitted as it is, from the root of the repository."""
