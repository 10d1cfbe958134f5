"""Layers with pruned weights."""
