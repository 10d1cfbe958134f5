"""The error for a node that an export format cannot represent."""

from __future__ import annotations

from edgekit.host.compiler.ir.types import Node
from edgekit.host.errors import InputError


def refused(node: Node, format: str, expected: str, found: str, instead: str) -> InputError:
    """One line: the node, what the format expects, what was found, and what to do instead."""
    return InputError(
        f"node {node.name} ({node.op.kind}) cannot be written as {format}: "
        f"expected {expected}, found {found}; {instead}"
    )
