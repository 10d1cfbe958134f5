"""Registries of functions per operator, filled by decorators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from edgekit.host.compiler.ir.types import Operator

_F = TypeVar("_F", bound=Callable[..., Any])
_Own = TypeVar("_Own", bound=Callable[..., Any])  # preserves the decorated function's own type


class ByOperator(Generic[_F]):
    """Maps operator classes to functions; a function for a base class also serves its subclasses.

    As a decorator, `@registry(ops.Pad, ops.Concat)`, it registers a function for these operators.
    """

    def __init__(self) -> None:
        self._functions: dict[type[Operator], _F] = {}

    def __call__(self, *operators: type[Operator]) -> Callable[[_Own], _Own]:
        def register(function: _Own) -> _Own:
            for operator in operators:
                if operator in self._functions:
                    raise TypeError(f"{operator.__name__} has two functions")
                self._functions[operator] = cast(_F, function)
            return function

        return register

    def of(self, operator: type[Operator]) -> _F | None:
        """Return the function of the class or of its nearest base class, or None."""
        known = (self._functions.get(kind) for kind in operator.__mro__)
        return next((function for function in known if function is not None), None)

    def own(self, operator: type[Operator]) -> _F | None:
        """Return the function of the class itself, ignoring base classes, or None."""
        return self._functions.get(operator)
