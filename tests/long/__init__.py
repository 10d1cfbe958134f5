"""Suites of minutes and hours: `python -m tests.long.NAME --help`."""
