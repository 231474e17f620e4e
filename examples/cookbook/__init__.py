"""The programs of ``docs/how-to/cookbook.md``; each file is submitted as it is, from the root of the repository."""
