"""Fewer weights with their errors made up for, fitted to samples: `prune`, `pruned_file`."""

from edgekit.host.prune.file import pruned_file
from edgekit.host.prune.pattern import Pattern, pattern_of
from edgekit.host.prune.prune import Pruned, prune

__all__ = ["Pattern", "Pruned", "pattern_of", "prune", "pruned_file"]
