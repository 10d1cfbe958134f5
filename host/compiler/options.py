"""Compile options: everything a user may specify besides the model and the board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from edgekit.device.runtime.agent.variants import shapes_text
from edgekit.host.compiler.asked import cli_option
from edgekit.host.errors import InputError

Order = Literal["search", "import", "memory"]
WeightBits = Literal["int8", "int4", "int3", "int2"]
Precision = Literal["f32", "f16", "auto"]
Cache = Literal["f32", "int8"]
Task = Literal[
    "auto",
    "guess",
    "none",
    "classify",
    "detect",
    "pose",
    "segment",
    "embed",
    "ocr",
    "image",
    "keyword",
    "vad",
    "transcribe",
    "speak",
    "generate",
]
Shapes = Mapping[str, tuple[int, ...]]

GROUP_SIZES = (32, 64, 128)
_MOST_VARIANTS = 32  # each is compiled, sent and checked
_USUAL_SHADOW = 100


@dataclass(frozen=True)
class DecoderOptions:
    """How a language model is imported: the tokens it remembers, by default a usual number,
    whether quantized weights become floats, the `rows`, tokens that it reads at a time, and the
    type of the keys and values it remembers."""

    context: int | None = None
    floats: bool = False
    rows: int = 1
    cache: Cache = "f32"


DEFAULT_DECODER = DecoderOptions()


@dataclass(frozen=True)
class StateBinding:
    """An output that becomes the input of that name in the next run; `*` in both matches the same
    text."""

    input: str
    output: str

    def __post_init__(self) -> None:
        stars = self.input.count("*"), self.output.count("*")
        if not (self.input and self.output) or stars not in ((0, 0), (1, 1)):
            raise InputError(
                "--state: expected INPUT=OUTPUT, with one * in both or in neither, found "
                f"{self.input}={self.output}"
            )


@dataclass(frozen=True)
class CompileOptions:
    """Everything a user may specify for a compile besides the model and the board.

    This is the only list of these options: command line options are generated from it.
    """

    shapes: Shapes = field(
        default_factory=dict,
        metadata=cli_option(
            "Shape of an input; repeat it for more inputs or more shapes.",
            flag="--input-shape",
            metavar="NAME=1,3,224,224",
        ),
    )
    signatures: tuple[str, ...] = field(
        default=(),
        metadata=cli_option(
            "Signature of a .tflite model to compile; repeat it for more (default: all).",
            flag="--signature",
            metavar="NAME",
        ),
    )
    memory_limit: int | None = field(
        default=None,
        metadata=cli_option(
            "Memory the model may use (default: the board's).",
            metavar="512KiB",
        ),
    )
    weights: WeightBits | None = field(
        default=None,
        metadata=cli_option(
            "Store float weights in 2 to 8 bits, and quantize activations dynamically.",
        ),
    )
    precision: Precision = field(
        default="f32",
        metadata=cli_option(
            "Float type to compute in; auto takes f16 if outputs change by at most 2%.",
        ),
    )
    samples: Path | None = field(
        default=None,
        metadata=cli_option(
            "Sample inputs: quantize the model to 8 bits, or fit --weights to them.",
            metavar="FILE.npz or FOLDER",
        ),
    )
    group_size: int | None = field(
        default=None,
        metadata=cli_option(
            "Weights that share a scale, with --weights.",
            metavar="32|64|128",
        ),
    )
    min_cosine: float | None = field(
        default=None,
        metadata=cli_option(
            "Keep layers in 8 bits until outputs are this similar, with int4 and less.",
            metavar="COSINE",
        ),
    )
    states: tuple[StateBinding, ...] = field(
        default=(),
        metadata=cli_option(
            "Feed an output back as an input of the next run; * matches any text.",
            flag="--state",
            metavar="INPUT=OUTPUT",
        ),
    )
    task: Task = field(
        default="auto",
        metadata=cli_option(
            "Add readable results as outputs: from the file (auto), by shapes (guess).",
        ),
    )
    head: str = field(
        default="",
        metadata=cli_option(
            "Detector head, where outputs fit several (the error names them).",
            metavar="NAME",
        ),
    )
    context_tokens: int | None = field(
        default=None,
        metadata=cli_option(
            "Tokens that a language model remembers (default: at most 512).",
            flag="--context",
            metavar="N",
            least=1,
        ),
    )
    kv_cache: Cache = field(
        default="f32",
        metadata=cli_option(
            "Type of the keys and values that a language model remembers.",
        ),
    )
    max_rows: int | None = field(
        default=None,
        metadata=cli_option(
            "Limit for the rows of outputs whose size depends on the data, such as speech.",
            metavar="N",
            least=1,
        ),
    )
    order: Order = field(
        default="search",
        metadata=cli_option(
            "Order operators for time or for peak memory, or keep the model's order.",
            compile_only=True,
        ),
    )
    random_seed: int = field(
        default=0,
        metadata=cli_option(
            "Seed of the search for an order.",
            metavar="N",
            least=0,
            compile_only=True,
        ),
    )
    threads: int | None = field(
        default=None,
        metadata=cli_option(
            "Threads the release runs on (default: chosen by cost; 1 on x86).",
            metavar="N",
            least=1,
            compile_only=True,
        ),
    )
    cluster: str = field(
        default="",
        metadata=cli_option(
            "Cores the release runs on: big, little or a core's name (default: by cost).",
            metavar="NAME",
            compile_only=True,
        ),
    )
    shadow: int = field(
        default=0,
        metadata=cli_option(
            "Let the board repeat one in N inferences in float, and report how many agree.",
            metavar="1/N",
            release_only=True,
        ),
    )
    field_ranges: bool = field(
        default=False,
        metadata=cli_option(
            "Also report sketches of the float model's values, for quantize --from-field.",
            release_only=True,
        ),
    )
    float_model: Path | None = field(
        default=None,
        metadata=cli_option(
            "The model before quantization, for --shadow and --field-ranges (default: MODEL).",
            metavar="FILE",
            release_only=True,
        ),
    )
    recognizer: Path | None = field(
        default=None,
        metadata=cli_option(
            "Model that reads the text in the boxes, for the same release.",
            metavar="FILE",
            release_only=True,
        ),
    )
    more_shapes: tuple[Shapes, ...] = ()  # of further variants in the same release

    def __post_init__(self) -> None:
        if self.head and self.task not in ("auto", "guess", "detect"):
            raise InputError(f"--head: expected --task detect with it, found --task {self.task}")
        if self.group_size is not None and self.weights is None:
            raise InputError(
                "--group-size: expected --weights int8, int4, int3 or int2 with it, found none"
            )
        few = self.weights in ("int4", "int3", "int2")
        if self.min_cosine is not None and not (few and self.samples):
            found = "no --samples" if few else f"--weights {self.weights or 'none'}"
            raise InputError(
                "--min-cosine: expected --weights int4, int3 or int2 and --samples with it, found "
                f"{found}"
            )
        if self.min_cosine is not None and not 0 < self.min_cosine < 1:
            raise InputError(
                f"--min-cosine: expected a cosine between 0 and 1, found {self.min_cosine:g}"
            )
        if self.group_size is not None and self.group_size not in GROUP_SIZES:
            raise InputError(
                f"--group-size: expected {', '.join(map(str, GROUP_SIZES[:-1]))} or "
                f"{GROUP_SIZES[-1]}, found {self.group_size}"
            )
        if self.recognizer is not None and (self.samples is not None or self.signatures[1:]):
            raise InputError(
                "--recognizer: expected it without --samples and --signature, found one; compile "
                "the model that reads alone, and name it to run: --recognizer NAME"
            )
        self._check_shadow()

    def _check_shadow(self) -> None:
        if self.float_model is not None and not self.repeats_every:
            raise InputError(
                "--float-model: expected --shadow or --field-ranges with it, found none"
            )
        exact = self.samples is None and self.weights is None and self.precision == "f32"
        if self.repeats_every and self.float_model is None and exact:
            raise InputError(
                f"{'--shadow' if self.shadow else '--field-ranges'}: expected --samples, --weights "
                "or --precision with it, found none of them; for a model that is quantized "
                "already, name the one before: --float-model FILE"
            )

    @property
    def repeats_every(self) -> int:
        """A board repeats one in so many inferences with the float model; 0: none."""
        return self.shadow or (_USUAL_SHADOW if self.field_ranges else 0)

    @property
    def in_float(self) -> CompileOptions:
        """The options of the float model that repeats inferences on a board."""
        return replace(
            self,
            samples=None,
            weights=None,
            precision="f32",
            threads=1,
            shadow=0,
            group_size=None,
            min_cosine=None,
            field_ranges=False,
            float_model=None,
            states=(),
        )

    @property
    def decoder(self) -> DecoderOptions:
        """For language models: weights that are to be quantized are read as floats."""
        rows = self.shapes.get("tokens", (1, 1))[-1]
        return DecoderOptions(self.context_tokens, self.weights is not None, rows, self.kv_cache)

    @property
    def quantizes(self) -> bool:
        """True if the model is quantized to 8 bits with its samples before it is compiled."""
        return self.samples is not None and self.weights is None

    @property
    def signature(self) -> str:
        """The signature to compile, for options of one variant; empty for the model's only one."""
        return self.signatures[0] if self.signatures else ""

    def each_variant(self, known: Mapping[str, Sequence[str]]) -> tuple[CompileOptions, ...]:
        """These options for each signature and each set of shapes of its inputs in turn.

        `known` are the signatures of the model with the names of their inputs. Raises InputError
        for others, and for too many variants.
        """
        chosen = self.signatures or (tuple(known) if len(known) > 1 else ("",))
        if wrong := next((name for name in chosen if name not in ("", *known)), None):
            raise InputError(
                f"--signature: expected one of {', '.join(known) or 'none'}, found {wrong}"
            )
        inputs = {n for name in chosen for n in known.get(name, ())}
        made: dict[str, CompileOptions] = {}
        for name in dict.fromkeys(chosen):
            others = inputs.difference(known.get(name, ()))
            for every in (self.shapes, *self.more_shapes):
                shapes = {n: shape for n, shape in every.items() if n not in others}
                each = replace(
                    self, shapes=shapes, more_shapes=(), signatures=(name,) if name else ()
                )
                made.setdefault(f"{name} {shapes_text(shapes)}", each)
        if len(made) > _MOST_VARIANTS:
            raise InputError(
                f"expected at most {_MOST_VARIANTS} signatures and shapes in a release, found "
                f"{len(made)}; choose some: --signature {next(iter(chosen))}"
            )
        return tuple(made.values())

    @property
    def is_default(self) -> bool:
        """True if all options have their defaults."""
        return self == DEFAULT_OPTIONS


DEFAULT_OPTIONS = CompileOptions()


def variants_of(shapes: Mapping[str, Sequence[tuple[int, ...]]]) -> tuple[Shapes, ...]:
    """One mapping per variant; the n-th has the n-th shape of each input, or its only shape.

    Raises InputError if inputs have different numbers of shapes other than one, or duplicate
    shapes.
    """
    counts = {len(several) for several in shapes.values()} - {1}
    if len(counts) > 1:
        found = ", ".join(f"{len(several)} of {name}" for name, several in shapes.items())
        raise InputError(
            "--input-shape: expected the same number of shapes for each input, or one, "
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
