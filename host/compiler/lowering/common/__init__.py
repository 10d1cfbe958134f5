"""Helpers shared by the lowerings of several operator families."""
