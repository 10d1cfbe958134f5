"""How a model is to be compiled: what a user may ask for beside the model and the board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from edgekit.device.runtime.agent.variants import shapes_text
from edgekit.host.errors import InputError

Order = Literal["search", "import", "memory"]
WeightBits = Literal["int8", "int4"]
Activations = Literal["dynamic-outlier"]
Precision = Literal["f32", "f16", "auto"]
Shapes = Mapping[str, tuple[int, ...]]

GROUP_SIZES = (32, 64, 128)
_MOST_VARIANTS = 32  # each is compiled, sent and checked


@dataclass(frozen=True)
class Tie:
    """An output that is the input of that name in the next run; `*` in both stands for one text."""

    input: str
    output: str

    def __post_init__(self) -> None:
        stars = self.input.count("*"), self.output.count("*")
        if not (self.input and self.output) or stars not in ((0, 0), (1, 1)):
            raise InputError(
                "--state: expected INPUT=OUTPUT, with one * in both or none, found "
                f"{self.input}={self.output}"
            )


@dataclass(frozen=True)
class CompileOptions:
    """`shapes`: of inputs that a model leaves open, by name; `more_shapes`: those of further
    variants, which go into the same release.

    `order`: what the operators' order is searched for: time ("search") or peak memory ("memory");
    "import" keeps the importer's. `random_seed` makes a search repeatable.

    `memory_limit`: bytes that an operator, and the arena, may take; None: what the board has.

    `weights`: what constant matrices are kept in; `activations`: how what they meet is quantized as
    it comes. One is not without the other.

    `group_size`: values of k that share a scale of such weights; `samples`: what weights of few
    bits and thresholds of outliers are fitted to; `target`: the cosine of outputs for which some
    weights get 8 bits where others have 4.

    `precision`: what float operators that have kernels for it compute in; "auto": f16 where the
    board can and golden outputs stay near those of f32.

    `states`: outputs that the release keeps as inputs of its next run.

    `quantize`: samples by which a model of floats becomes one of 8-bit codes first.

    `threads` and `cluster` stand over what the release would say by price of where it runs.
    """

    shapes: Shapes = field(default_factory=dict)
    order: Order = "search"
    random_seed: int = 0
    memory_limit: int | None = None
    weights: WeightBits | None = None
    activations: Activations | None = None
    precision: Precision = "f32"
    more_shapes: tuple[Shapes, ...] = ()
    threads: int | None = None
    cluster: str = ""
    quantize: Path | None = None
    group_size: int | None = None
    samples: Path | None = None
    target: float | None = None
    states: tuple[Tie, ...] = ()

    def __post_init__(self) -> None:
        if (self.weights is None) != (self.activations is None):
            found = "--weights" if self.weights else "--activations"
            raise InputError(
                "expected --weights int8 or int4 together with --activations dynamic-outlier, "
                f"found {found} alone; give both"
            )
        if self.samples is not None and self.weights is None:
            raise InputError(
                "--samples: expected --weights int8 or int4, which are fitted to them, found none; "
                "or did you mean --quantize?"
            )
        if self.group_size is not None and self.weights is None:
            raise InputError(
                "--group-size: expected --weights int8 or int4, of which groups share a scale, "
                "found none"
            )
        if self.target is not None and (self.weights != "int4" or self.samples is None):
            found = (
                "no --samples" if self.weights == "int4" else f"--weights {self.weights or 'none'}"
            )
            raise InputError(
                "--target: expected --weights int4 and --samples, by which some weights get 8 bits "
                f"instead, found {found}"
            )
        if self.target is not None and not 0 < self.target < 1:
            raise InputError(f"--target: expected a cosine between 0 and 1, found {self.target:g}")
        if self.group_size is not None and self.group_size not in GROUP_SIZES:
            raise InputError(
                f"--group-size: expected {', '.join(map(str, GROUP_SIZES[:-1]))} or "
                f"{GROUP_SIZES[-1]}, found {self.group_size}"
            )

    def each_variant(self) -> tuple[CompileOptions, ...]:
        """The same for one set of shapes after the other."""
        every = (self.shapes, *self.more_shapes)
        return tuple(replace(self, shapes=shapes, more_shapes=()) for shapes in every)

    @property
    def is_default(self) -> bool:
        """Whether nothing was asked for."""
        return self == DEFAULT_OPTIONS


DEFAULT_OPTIONS = CompileOptions()


def variants_of(shapes: Mapping[str, Sequence[tuple[int, ...]]]) -> tuple[Shapes, ...]:
    """One mapping per variant: its n-th has the n-th shape of each input, or the only one.

    InputError if inputs have several shapes and not as many as each other, or one twice.
    """
    counts = {len(several) for several in shapes.values()} - {1}
    if len(counts) > 1:
        found = ", ".join(f"{len(several)} of {name}" for name, several in shapes.items())
        raise InputError(
            "--input-shape: expected as many shapes of one input as of the other, or one for all, "
            f"found {found}"
        )
    count = counts.pop() if counts else 1
    if count > _MOST_VARIANTS:
        raise InputError(
            f"--input-shape: expected at most {_MOST_VARIANTS} shapes of an input, found {count}"
        )
    made = [
        {name: tuple(several[i % len(several)]) for name, several in shapes.items()}
        for i in range(count)
    ]
    if again := next((m for i, m in enumerate(made) if m in made[:i]), None):
        raise InputError(
            f"--input-shape: expected different shapes, found {shapes_text(again)} again"
        )
    return tuple(made)
