"""Refuses unsupported operators, grouped by kind so that the message fits on one line."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from edgekit.host.compiler.frontends.common.names import shown_name
from edgekit.host.errors import InputError

_KINDS_LISTED = 40
_PLACES_LISTED = 3

_TEXT = "give the model numbers; convert text in the application"
_LENGTH = "its output size depends on the data; end the model before it"
_CONTROL = "export the model with its loops unrolled and its branches decided"
_LISTS = "use joined and split tensors instead of sequences and optional values"
_CHANGE = "change it before the export, or end the model before it"
_OTHER = "end the model before it and continue in the application, or replace it before the export"

# (prefix of a kind, in lower case and without _; what to do instead). The first match wins.
_ADVICE: tuple[tuple[str, str], ...] = (
    ("custom:flex", "convert the model again with TFLITE_BUILTINS as its only operators"),
    ("custom:", "only one program defines it; end the model before it"),
    ("ai.onnx.ml:", _TEXT),
    ("ai.onnx.preview.training:", "export the model for inference, not for training"),
    ("com.microsoft:", "export the model before ONNX Runtime's optimizer fuses operators"),
    ("hashtable", _TEXT),
    ("string", _TEXT),
    ("regex", _TEXT),
    ("tfidf", _TEXT),
    ("skipgram", _TEXT),
    ("lshprojection", _TEXT),
    ("nonzero", _LENGTH),
    ("where", _LENGTH),
    ("unique", _LENGTH),
    ("compress", _LENGTH),
    ("if", _CONTROL),
    ("loop", _CONTROL),
    ("scan", _CONTROL),
    ("while", _CONTROL),
    ("call", _CONTROL),
    ("sequence", _LISTS),
    ("splittosequence", _LISTS),
    ("concatfromsequence", _LISTS),
    ("optional", _LISTS),
    ("imagedecoder", "decode the picture in the application and give the model its pixels"),
    ("delegate", "give the original model, without delegate partitions"),
)


class UnsupportedError(InputError):
    """The model contains unsupported operators."""


class MisfitInputError(InputError):
    """A `MisfitError` inside a subgraph: shapes that violate the operator's own definition."""


@dataclass(frozen=True)
class Unsupported:
    """Unsupported operators of one kind; `places` are their numbers in the file, in order."""

    kind: str
    places: tuple[str, ...]

    def __str__(self) -> str:
        """PRELU × 23 (first: 4, 13, 22)"""
        listed = ", ".join(self.places[:_PLACES_LISTED])
        count = len(self.places)
        if count == 1:
            return f"{self.kind} ({listed})"
        return f"{self.kind} × {count} ({'first: ' if count > _PLACES_LISTED else ''}{listed})"


def unsupported(
    operators: Iterable[tuple[str, str]], known: Container[str]
) -> tuple[Unsupported, ...]:
    """The kinds in `operators` ((number, kind) pairs) that are not `known`, in file order."""
    places: dict[str, list[str]] = {}
    for place, kind in operators:
        if kind not in known:
            places.setdefault(kind, []).append(place)
    return tuple(Unsupported(shown_name(kind), tuple(found)) for kind, found in places.items())


def refuse(found: Sequence[Unsupported]) -> None:
    """Raises `UnsupportedError` with one line for all kinds, unless `found` is empty."""
    if not found:
        return
    listed = ", ".join(str(group) for group in found[:_KINDS_LISTED])
    if len(found) == 1 and len(found[0].places) == 1:
        what, verb = f"operator {found[0].places[0]} ({found[0].kind})", "is"
    else:
        more = len(found) - _KINDS_LISTED
        what = f"operators {listed}" + (f" and {more} more kinds" if more > 0 else "")
        verb = "are"
    raise UnsupportedError(
        f"{what} {verb} not supported; what to do instead: edgekit inspect MODEL; "
        "supported operators: edgekit compile --list-operators"
    )


def at_operator(place: str, error: Exception, what: str = "operator") -> str:
    """The message of an error at an operator, with advice if it has none."""
    message = f"{what} {place}: {error}"
    return message if ";" in str(error) else f"{message}; {_CHANGE}"


def advice(kind: str) -> str:
    """What to do about an unsupported operator."""
    plain = kind.lower().replace("_", "")
    return next((what for start, what in _ADVICE if plain.startswith(start)), _OTHER)


def need_numbers(what: str, kind: str) -> None:
    """Refuses a tensor of strings; `what` names it, `kind` is the file's name of its type."""
    if kind == "STRING":
        raise InputError(f"{what}: expected numbers, found strings; {_TEXT}")
