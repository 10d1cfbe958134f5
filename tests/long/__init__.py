"""Test suites that take minutes to hours: `python -m tests.long.NAME --help`."""
