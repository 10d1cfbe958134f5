"""Compares a model with its reference operator by operator: in float, quantized, on a board."""
