"""Fitting a graph to a board's memory: split → schedule → lower → back, one loop until it fits."""

from edgekit.host.compiler.fit.loop import Fitted, fit
from edgekit.host.compiler.fit.plan import plan_of

__all__ = ["Fitted", "fit", "plan_of"]
