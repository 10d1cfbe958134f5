"""Measures methods on boards and builds tables from the results."""
