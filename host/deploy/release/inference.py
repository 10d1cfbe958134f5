"""Runs inferences on the deployed release, in one board process per session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from edgekit.device.runtime.agent.dictation import Subtitle, is_dictation
from edgekit.device.runtime.agent.lines import Line
from edgekit.device.runtime.agent.manifest import RELEASE_ID, is_release_id
from edgekit.device.runtime.agent.npz import Array
from edgekit.device.runtime.agent.serve import SCHEMA
from edgekit.device.runtime.agent.specs import (
    OperatorSpec,
    PlacementRequest,
    TensorSpec,
    operator_of,
    tensor_of,
)
from edgekit.device.runtime.agent.strict import bad, each, integer, keys_of, matching, number, text
from edgekit.device.runtime.agent.task import FIND, LISTEN, READ, TaskSpec, task_of
from edgekit.device.runtime.agent.variants import HasSignature, chosen, variant_for
from edgekit.device.runtime.agent.wire import HEAD_BYTES, MAGIC, Document, pack, receive
from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.common.text import printable
from edgekit.host.deploy.release.answers import ErrorAnswer
from edgekit.host.deploy.release.runtime import (
    QUICK_SECONDS,
    BoardCalls,
    how_it_ended,
    reported,
    tell_notes,
)
from edgekit.host.deploy.release.types import OperatorTime, Timings
from edgekit.host.deploy.transport import Stream
from edgekit.host.errors import InputError, TransferError, UnreachableError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgekit.host.deploy.release.types import Arrays

RUN_SECONDS = 600.0
_END_SECONDS = 2.0  # grace period for the process to exit after its input is closed


@dataclass(frozen=True)
class ServedVariant:
    """The model for one set of input shapes, or one of its signatures; `stateful` if it keeps state
    between runs."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    operators: tuple[OperatorSpec, ...]
    stateful: bool
    signature: str = ""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The input shapes, by name."""
        return {spec.name: spec.shape for spec in self.inputs}


@dataclass(frozen=True)
class Served:
    """The release that a session runs for its lifetime; `task` is what it is for, if known."""

    release: str
    model: str
    threads: int
    variants: tuple[ServedVariant, ...]
    task: TaskSpec | None = None

    def of(self, signature: str) -> tuple[ServedVariant, ...]:
        """The variants of a signature; InputError if it is unknown, or empty although the model has
        several, and its task does not say which one is for inputs of users."""
        return variants_of_signature(self.variants, signature, self.task)


@dataclass(frozen=True)
class Generated:
    """A piece of a text, None behind the last one; `finish` says why it ended. The counts and
    seconds are of the prompt and of the text so far."""

    text: str | None
    finish: str
    prompt_tokens: int
    tokens: int
    prompt_seconds: float
    seconds: float


Chosen = TypeVar("Chosen", bound=HasSignature)


def variants_of_signature(
    variants: Sequence[Chosen], signature: str, task: TaskSpec | None
) -> tuple[Chosen, ...]:
    """Like `chosen`, with this host's InputError. The encoder hears the sound."""
    if not signature and is_dictation(task, variants):
        signature = LISTEN
    if not signature and {FIND, READ} == {v.signature for v in variants}:
        signature = FIND
    try:
        return chosen(variants, signature)
    except DeviceInputError as error:
        raise InputError(str(error)) from None


def _subtitle_of(raw: object, where: str) -> Subtitle:
    if not isinstance(raw, list) or len(raw) != len(Subtitle._fields):
        raise bad(where, "a text and three numbers", type(raw).__name__)
    return Subtitle(str(raw[0]), *(number(value, where) for value in raw[1:]))


class InferenceSession:
    """Runs the release that was current when the session was opened, regardless of later deploys.

    The model is loaded once, and a streaming model keeps its state between runs until `reset`. Only
    one thread may use a session at a time. `served` describes the running release; `replaced_by` is
    the release that has become current since, if any.
    """

    def __init__(self, stream: Stream, board: str, served: Served) -> None:
        self._stream = stream
        self._board = board
        self._ended = False
        self.served = served
        self.replaced_by: str | None = None
        both = ((v.inputs, v.outputs) for v in served.variants)
        self._most_bytes = max(sum(s.bytes for s in specs) for pair in both for specs in pair)

    def run(self, inputs: Arrays, signature: str = "") -> tuple[dict[str, NDArray[Any]], Timings]:
        """Runs one inference; returns outputs by name, and timings.

        `signature` names one of a model that has several; without it, the inputs decide. Dtypes are
        converted if no value changes. InputError describes the expected inputs; the session stays
        usable. UnreachableError reports how the board's process ended.
        """
        import numpy as np

        from edgekit.host.compiler.inputs import fitted

        given = {name: np.asarray(value) for name, value in inputs.items()}
        try:
            variant = variant_for(self.served.variants, given, signature)
        except DeviceInputError as error:
            raise InputError(f"board '{self._board}': {error}") from None
        document, outputs = self._request("run", fitted(given, variant.inputs), signature)
        with self._close_on_error():
            found = {name: (array.dtype, array.shape) for name, array in outputs.items()}
            wanted = {spec.name: (spec.dtype, spec.shape) for spec in variant.outputs}
            if found != wanted:
                raise bad("outputs", str(wanted), found)
            times = _parse_timings(self.served, variant, document)
            self._note_replacement(document.get("current"))
        return {name: _to_numpy(array) for name, array in outputs.items()}, times

    def tokens(self, value: str | list[int]) -> dict[str, NDArray[Any]]:
        """The inputs that a model of texts takes for `value`, as its tokenizer on the board makes
        them, or a voice for phonemes or their numbers."""
        _, inputs = self._request("tokens", {}, text=value)
        return {name: _to_numpy(array) for name, array in inputs.items()}

    def line(self, values: NDArray[Any]) -> Line:
        """The line of text that an output of a model for `ocr` says."""
        document, _ = self._request("line", {"values": values})
        return self._line_of(document)

    def _line_of(self, document: Document) -> Line:
        with self._close_on_error():
            keys = keys_of(document, "line", ("text", "score"))
            return Line(str(keys["text"]), number(keys["score"], "score"))

    def transcribe(self, samples: NDArray[Any]) -> tuple[Line, float]:
        """The text of at most a window of samples, f32 [n], by an encoder and a decoder
        (agent/dictation.py), and the milliseconds that it took."""
        document, _ = self._request("transcribe", {"samples": samples})
        with self._close_on_error():
            spent = integer(document.pop("ns", None), "ns", 0, 1 << 62)
        return self._line_of(document), spent / 1e6

    def subtitles(self, samples: NDArray[Any]) -> tuple[list[Subtitle], float]:
        """The same with the times of its parts, from the start of the samples."""
        document, _ = self._request("transcribe", {"samples": samples}, timed=True)
        with self._close_on_error():
            keys = keys_of(document, "transcribe", ("subtitles", "ns"))
            found = each(keys["subtitles"], "subtitles", _subtitle_of)
            return [*found], integer(keys["ns"], "ns", 0, 1 << 62) / 1e6

    def generate(
        self, prompt: str | Sequence[Mapping[str, str]], **sampling: object
    ) -> Iterator[Generated]:
        """The pieces of the text with which a language model continues `prompt`, or answers the
        messages of a conversation, as they are computed; the last one has the reason in `finish`.

        `sampling`: fields of device/runtime/agent/generate.py's Sampling. InputError for a prompt
        that does not fit, or a model that makes no texts.
        """
        document, _ = self._request("generate", {}, prompt=prompt, sampling=sampling)
        with self._close_on_error():
            count = integer(document.get("prompt_tokens"), "prompt_tokens")
        while True:
            document, _ = self._request("proceed", {})
            with self._close_on_error():
                made = _parse_generated(document, count)
                self._note_replacement(document.get("current"))
            yield made
            if made.text is None:
                return

    def reset(self) -> None:
        """Resets a streaming model's state."""
        self._request("reset", {})

    def close(self) -> None:
        """Ends the process on the board."""
        if not self._ended:
            self._ended = True
            tell_notes(self._board, self._stream.close(deadline=_END_SECONDS))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _request(
        self, what: str, inputs: Arrays, signature: str = "", **more: object
    ) -> tuple[Document, dict[str, Array]]:
        if self._ended:
            raise InputError(
                f"board '{self._board}': expected an open session, found it closed; open another"
            )
        request = {"do": what, **({"signature": signature} if signature else {}), **more}
        message = pack(request, {name: Array.of(value) for name, value in inputs.items()})
        with self._close_on_error():
            self._stream.send(message, deadline=RUN_SECONDS)
            document, arrays = receive(self._read, self._most_bytes)
            refused = document.get("error")
            if refused is not None:
                keys = keys_of(refused, "error", ("kind", "message"))
                refused = ErrorAnswer(
                    kind=text(keys["kind"], "kind"), message=printable(str(keys["message"]))
                )
        if refused is not None:
            raise reported(self._board, refused)
        return document, arrays

    @contextlib.contextmanager
    def _close_on_error(self) -> Iterator[None]:
        """Closes the connection on any error, because the stream is out of sync afterwards."""
        try:
            yield
        except DeviceInputError as error:
            self.close()
            raise _protocol_error(self._board, error) from None
        except BaseException:
            self.close()
            raise

    def _read(self, size: int) -> bytes:
        return _receive_exactly(self._stream, self._board, size, RUN_SECONDS)

    def _note_replacement(self, current: object) -> None:
        if isinstance(current, str) and is_release_id(current):
            self.replaced_by = current if current != self.served.release else None


def placement_args(request: PlacementRequest) -> list[str]:
    """Returns the runtime's placement options; none leaves threads and cluster to the release."""
    options = ["--threads", str(request.threads)] if request.threads else []
    return [*options, "--cluster", request.cluster] if request.cluster else options


def open_session(board: BoardCalls, request: PlacementRequest) -> InferenceSession:
    """Starts the deployed release and waits until it is loaded; InputError if nothing is
    deployed."""
    stream = board.talk_to_release("serve-session", *placement_args(request), magic=MAGIC)
    name = board.name
    try:
        rest = _receive_exactly(stream, name, HEAD_BYTES - len(MAGIC), QUICK_SECONDS)
        hello, _ = receive(
            lambda n: _receive_exactly(stream, name, n, QUICK_SECONDS), 0, MAGIC + rest
        )
        return InferenceSession(stream, name, _parse_hello(hello))
    except DeviceInputError as error:
        stream.close(deadline=0)
        raise _protocol_error(name, error) from None
    except BaseException:
        stream.close(deadline=0)
        raise


def _receive_exactly(stream: Stream, board: str, size: int, deadline: float) -> bytes:
    """Reads exactly `size` bytes; if they do not arrive, UnreachableError reports how the process
    ended."""
    parts, missing = [], size
    while missing:
        data = stream.receive(missing, deadline=deadline)
        if not data:
            how = how_it_ended(stream.close(deadline=_END_SECONDS))
            raise UnreachableError(
                f"board '{board}': expected an answer in the session, found {how}; open another, "
                f"and see what the board lacks: edgekit doctor --board {board}"
            )
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def _protocol_error(board: str, error: DeviceInputError) -> TransferError:
    return TransferError(
        f"board '{board}': expected an answer from a session, found something else: "
        f"{printable(str(error))}; deploy again"
    )


def _parse_hello(hello: Document) -> Served:
    names = ("schema", "release", "model", "threads", "variants")
    keys = keys_of(hello, "session", names, ("task",))
    if keys["schema"] != SCHEMA:
        raise bad("schema", SCHEMA, keys["schema"])
    variants = each(keys["variants"], "variants", _parse_variant)
    if not variants:
        raise bad("variants", "at least one", "none")
    return Served(
        matching(keys["release"], "release", RELEASE_ID, "16 hex digits"),
        text(keys["model"], "model"),
        integer(keys["threads"], "threads", 1),
        variants,
        task_of(keys["task"], "task") if "task" in keys else None,
    )


def _parse_variant(raw: object, where: str) -> ServedVariant:
    keys = keys_of(raw, where, ("inputs", "outputs", "operators", "stateful"), ("signature",))
    return ServedVariant(
        each(keys["inputs"], f"{where}.inputs", tensor_of),
        each(keys["outputs"], f"{where}.outputs", tensor_of),
        each(keys["operators"], f"{where}.operators", operator_of),
        bool(keys["stateful"]),
        text(keys.get("signature", ""), f"{where}.signature"),
    )


def _parse_generated(document: Document, prompt_tokens: int) -> Generated:
    said = document.get("text")
    if said is not None and not isinstance(said, str):
        raise bad("text", "a text", type(said).__name__)
    return Generated(
        said,
        text(document.get("finish"), "finish"),
        prompt_tokens,
        integer(document.get("tokens"), "tokens"),
        number(document.get("prompt_seconds"), "prompt_seconds"),
        number(document.get("seconds"), "seconds"),
    )


def _to_numpy(array: Array) -> NDArray[Any]:
    import numpy as np

    kind = BY_NAME[array.dtype].npy
    return np.frombuffer(bytearray(array.data), kind).reshape(array.shape)


def _parse_timings(served: Served, variant: ServedVariant, document: Document) -> Timings:
    spent = each(document.get("operators_ns"), "operators_ns", integer)
    if len(spent) != len(variant.operators):
        raise bad("operators_ns", f"{len(variant.operators)} times", len(spent))
    total = sum(spent) or 1
    return Timings(
        served.release,
        served.threads,
        integer(document.get("ns"), "ns", 0, 1 << 62) / 1e6,
        tuple(
            OperatorTime(spec.name, spec.op, spec.kernel, ns / 1e3, ns / total)
            for spec, ns in zip(variant.operators, spent, strict=True)
        ),
    )
