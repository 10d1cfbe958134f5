"""What exporters say of a node that a format cannot hold."""

from __future__ import annotations

from edgekit.host.compiler.ir.types import Node
from edgekit.host.errors import InputError


def refused(node: Node, format: str, expected: str, found: str, instead: str) -> InputError:
    """One line that names the node, what would have been written, what there is, what to do."""
    return InputError(
        f"node {node.name} ({node.op.kind}) cannot be written as {format}: "
        f"expected {expected}, found {found}; {instead}"
    )
