"""Writes a `Graph` to a TensorFlow Lite file."""
