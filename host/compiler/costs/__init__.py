"""Costs of methods, operators and models."""
