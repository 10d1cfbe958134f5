"""Measured products and operators, kept; what benchmarks add to them."""
