"""Fitting a graph to a board's memory: split → schedule → lower → back, one loop until it fits."""

from edgekit.host.fit.loop import Fitted, fit
from edgekit.host.fit.plan import plan_of

__all__ = ["Fitted", "fit", "plan_of"]
