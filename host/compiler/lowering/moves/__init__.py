"""Operators that move or reorder data."""
