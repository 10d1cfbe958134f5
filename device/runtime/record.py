"""Immutable values with named fields: frozen dataclasses at a fraction of their start-up cost.

The module dataclasses imports inspect and compiles six methods per class, which took a third of the
time of a command. Records share the methods of their base class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Dict, NoReturn, Tuple, TypeVar

if TYPE_CHECKING:
    from dataclasses import Field
    from typing import dataclass_transform

    @dataclass_transform(frozen_default=True)
    class _Typed:
        """Lets type checkers derive the arguments of each record from its fields."""

        __dataclass_fields__: ClassVar[Dict[str, Field[Any]]]

else:

    class _DataclassFields:
        """Lets `asdict`, `fields` and `replace` of dataclasses, which the host uses, take
        records."""

        def __get__(self, _: object, kind: type) -> Dict[str, Any]:
            if "_dataclass" not in kind.__dict__:
                from dataclasses import make_dataclass

                kind._dataclass = make_dataclass(kind.__name__, kind.field_names)
            return kind._dataclass.__dataclass_fields__

    class _Typed:
        __dataclass_fields__ = _DataclassFields()


R = TypeVar("R", bound="Record")


class Record(_Typed):
    """Subclasses annotate their fields in the class body, those with defaults last."""

    field_names: ClassVar[Tuple[str, ...]] = ()
    _defaults: ClassVar[Dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        cls.field_names = tuple(cls.__annotations__)
        cls._defaults = {n: cls.__dict__[n] for n in cls.field_names if n in cls.__dict__}

    def __init__(self, *values: Any, **named: Any) -> None:
        given = {**dict(zip(self.field_names, values)), **named}
        fields = {**self._defaults, **given}
        if len(given) < len(values) + len(named) or fields.keys() != set(self.field_names):
            expected, found = ", ".join(self.field_names), ", ".join(given)
            raise TypeError(f"{type(self).__name__}: expected {expected}, found {found}")
        self.__dict__.update(fields)

    def __setattr__(self, name: str, _: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}: expected no change, found one of '{name}'")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        fields = (f"{name}={getattr(self, name)!r}" for name in self.field_names)
        return f"{type(self).__name__}({', '.join(fields)})"


def asdict(record: Record) -> Dict[str, Any]:
    """Returns the fields by name; nested records become dicts, too."""
    return {name: _plain(getattr(record, name)) for name in record.field_names}


def replace(record: R, **changes: Any) -> R:
    """Returns a copy with changed fields."""
    fields = dict(zip(record.field_names, _values(record)))
    return type(record)(**{**fields, **changes})


def _values(record: Record) -> Tuple[Any, ...]:
    return tuple(getattr(record, name) for name in record.field_names)


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return asdict(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
