"""Calibrated pruning: zeroes weights and refits the rest to samples (`prune`, `pruned_file`)."""

from edgekit.host.compiler.transforms.prune.pattern import Pattern, pattern_of
from edgekit.host.compiler.transforms.prune.prune import Pruned, prune, pruned_file

__all__ = ["Pattern", "Pruned", "pattern_of", "prune", "pruned_file"]
