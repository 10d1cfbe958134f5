"""Tuning and estimation jobs for many boards and models, on this host or a cluster."""
