"""Command line options derived from `CompileOptions`, for all commands that compile a model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from edgekit.host.cli.options import byte_count
from edgekit.host.compiler.asked import ASKED, Asked
from edgekit.host.compiler.options import (
    CompileOptions,
    Precision,
    Shapes,
    StateBinding,
    variants_of,
)
from edgekit.host.errors import InputError

_PARAMETER = "options"
_MOST_SHADOW = 1_000_000

Command = Callable[..., int | None]


def takes_compile_options(
    compiles: bool = False, deploys: bool = False, without: str = ""
) -> Callable[[Command], Command]:
    """Decorator: replaces a command's parameter `options` with one option per field.

    `compiles`: the command is `compile`, which has all options; `deploys`: it is `deploy`, which
    has those of what a release reports.
    `without`: the field whose option means something else to the command.
    """

    def decorate(command: Command) -> Command:
        wanted = tuple(
            f
            for f in _option_fields()
            if f.name != without and _is_of_command(_option_metadata(f), compiles, deploys)
        )
        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            own = parameter.name == _PARAMETER
            parameters += map(_build_parameter, wanted) if own else [parameter]

        def with_options(**given: Any) -> int | None:
            values = {f.name: given.pop(f.name) for f in wanted}
            models = given.get("models") or [given.get("model")]
            values["shapes"] = _named(values["shapes"], models[0] if len(models) == 1 else None)
            return command(**given, **{_PARAMETER: _build_options(values)})

        with_options.__doc__, with_options.__name__ = command.__doc__, command.__name__
        with_options.__annotations__ = {p.name: p.annotation for p in parameters}
        with_options.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=parameters
        )
        return with_options

    return decorate


def _is_of_command(asked: Asked, compiles: bool, deploys: bool) -> bool:
    if asked.release_only:
        return compiles or deploys
    return compiles or not asked.compile_only


def option_names() -> tuple[str, ...]:
    """All compile options as spelled on the command line."""
    return tuple(map(_option_flag, _option_fields()))


def words_of(options: CompileOptions) -> list[str]:
    """The options as command line words; omits `samples`, which name files of this host."""
    words: list[str] = []
    for each in _option_fields():
        asked = _option_metadata(each)
        if each.name == "samples" or asked.compile_only or asked.release_only:
            continue
        value = getattr(options, each.name)
        if each.name == "shapes":
            texts = [text for one in (value, *options.more_shapes) for text in _shape_words(one)]
        elif each.name == "states":
            texts = [f"{tie.input}={tie.output}" for tie in value]
        elif each.name == "signatures":
            texts = list(value)
        else:
            texts = [] if value == each.default else [str(value)]
        words += [word for text in texts for word in (_option_flag(each), text)]
    return words


def input_shapes(given: list[str] | None) -> tuple[Shapes, ...]:
    """Parses --input-shape values into one mapping from input to shape per variant."""
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for text in given or ():
        name, _, sizes = text.rpartition("=")
        parts = sizes.split(",")
        if not name or not all(p.strip().isdecimal() and int(p) > 0 for p in parts):
            raise InputError(
                f"--input-shape: expected NAME=1,3,224,224 with sizes of at least 1, found {text}"
            )
        shapes.setdefault(name, []).append(tuple(int(p) for p in parts))
    return variants_of(shapes)


def one_input_shape(given: list[str] | None, model: Path | str | None) -> Shapes:
    """Parses --input-shape for commands that take one shape per input of `model`."""
    first, *more = input_shapes(_named(given, model))
    if more:
        raise InputError(
            f"--input-shape: expected each input once, found {len(more) + 1} shapes of one; "
            "give one at a time"
        )
    return first


def _named(given: list[str] | None, model: Path | str | None) -> list[str] | None:
    """The values of --input-shape, with the name of the model's only input where one has none."""
    if model is None or all("=" in text for text in given or ()):
        return given
    from edgekit.host.compiler.frontends import outline_model

    try:
        names = [slot.name for slot in outline_model(Path(model)).inputs]
    except InputError:
        return given
    if len(names) > 1:
        raise InputError(
            f"--input-shape: expected NAME=1,3,224,224 with one of the inputs {', '.join(names)}, "
            "found no name"
        )
    return [text if "=" in text else f"{names[0]}={text}" for text in given or ()]


def _build_options(given: Mapping[str, Any]) -> CompileOptions:
    values = dict(given)
    values.setdefault("signatures", None)
    values["shadow"] = _parse_shadow(values.get("shadow"))
    shapes, *more = input_shapes(values["shapes"])
    values |= {"shapes": shapes, "more_shapes": tuple(more)}
    values["memory_limit"] = byte_count(values["memory_limit"])
    values["signatures"] = tuple(values["signatures"] or ())
    values["states"] = tuple(map(_parse_state_binding, values["states"] or ()))
    return CompileOptions(**values)


def _parse_state_binding(text: str) -> StateBinding:
    name, _, output = text.partition("=")
    return StateBinding(name, output)


def _parse_shadow(text: str | None) -> int:
    """The N of 1/N, 0 for None."""
    one, _, count = (text or "1/0").partition("/")
    if one != "1" or not count.isdecimal() or (text and not 1 <= int(count) <= _MOST_SHADOW):
        raise InputError(f"--shadow: expected 1/N with N from 1 to {_MOST_SHADOW}, found '{text}'")
    return int(count)


def _shape_words(shapes: Shapes) -> list[str]:
    return [f"{name}={','.join(map(str, sizes))}" for name, sizes in shapes.items()]


def _option_fields() -> tuple[Field[Any], ...]:
    return tuple(f for f in fields(CompileOptions) if ASKED in f.metadata)


def _option_metadata(each: Field[Any]) -> Asked:
    asked: Asked = each.metadata[ASKED]
    return asked


def _option_flag(each: Field[Any]) -> str:
    return _option_metadata(each).flag or f"--{each.name.replace('_', '-')}"


def _typer_option(each: Field[Any]) -> Any:
    asked = _option_metadata(each)
    return typer.Option(
        _option_flag(each),
        metavar=asked.metavar or None,
        min=asked.least,
        show_default=isinstance(each.default, str | int) and each.default != "",
        help=asked.help,
    )


def _build_parameter(each: Field[Any]) -> inspect.Parameter:
    """The field as a parameter from which typer creates an option."""
    several = dict.fromkeys(("shapes", "states", "signatures"), list[str] | None)
    text = {**several, "memory_limit": str | None, "shadow": str | None}
    kind = text.get(each.name) or get_type_hints(CompileOptions)[each.name]
    plain = each.name in text or each.default is MISSING
    return inspect.Parameter(
        each.name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=None if plain else each.default,
        annotation=Annotated[kind, _typer_option(each)],
    )


_FIELDS = {f.name: f for f in fields(CompileOptions)}
InputShapes = Annotated[list[str] | None, _typer_option(_FIELDS["shapes"])]
PrecisionOption = Annotated[Precision, _typer_option(_FIELDS["precision"])]
