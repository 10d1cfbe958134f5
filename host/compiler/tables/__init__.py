"""Loads and looks up per-core tables, both shipped with the kit and built by the user."""
