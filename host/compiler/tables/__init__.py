"""Loads and looks up per-core tables, both shipped with edgekit and built by the user."""
