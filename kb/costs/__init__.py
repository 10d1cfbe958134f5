"""Costs of methods on a core."""
