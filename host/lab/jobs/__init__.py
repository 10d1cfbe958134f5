"""Tuning and estimating as jobs: many boards and models, here or on the hosts of a cluster."""
