"""Fits a graph into a board's memory: split → schedule → lower, repeated until it fits."""

from edgekit.host.compiler.fit.loop import FittedGraph, fit
from edgekit.host.compiler.fit.plan import plan_of, spending_of

__all__ = ["FittedGraph", "fit", "plan_of", "spending_of"]
