"""Tasks: what a model is for, from its file, and outputs that people can read."""

from edgekit.host.compiler.tasks.find import class_count, with_task
from edgekit.host.compiler.tasks.prepared import Prepared

__all__ = ["Prepared", "class_count", "with_task"]
