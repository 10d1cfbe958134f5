"""Convolutions and chains of them."""
