"""Operators on the convolution accelerator (NNA)."""
