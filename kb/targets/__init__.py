"""Boards, cores and instruction sets."""
