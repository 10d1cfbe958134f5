"""Registries of functions, one for each operator, filled by decorators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from edgekit.host.compiler.ir.types import Operator

_F = TypeVar("_F", bound=Callable[..., Any])
_Own = TypeVar("_Own", bound=Callable[..., Any])  # a narrower type, which callers may rely on


class ByOperator(Generic[_F]):
    """One function for each operator; one for a family serves its members, too.

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
        """That of the class itself or of its nearest family, None if there is none."""
        known = (self._functions.get(kind) for kind in operator.__mro__)
        return next((function for function in known if function is not None), None)

    def own(self, operator: type[Operator]) -> _F | None:
        """That of the class itself, None where only its family has one."""
        return self._functions.get(operator)
