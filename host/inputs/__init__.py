"""What people have as inputs, made into what a model takes."""

from edgekit.host.inputs.convert import fitted

__all__ = ["fitted"]
