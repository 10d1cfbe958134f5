"""What a model finds in pictures and texts, as people name it."""

from __future__ import annotations

from array import array
from typing import Any, Callable, ContextManager, List, Optional, Sequence, TypeVar

from edgekit.device.runtime.agent.dictation import Subtitle
from edgekit.device.runtime.agent.fitting import Box, Pose
from edgekit.device.runtime.agent.generate import sampling_of
from edgekit.device.runtime.agent.images import Image
from edgekit.device.runtime.agent.instances import Instance
from edgekit.device.runtime.agent.lines import Line
from edgekit.device.runtime.agent.pages import TextLine, read_page
from edgekit.device.runtime.agent.rotated import Rotated
from edgekit.device.runtime.agent.segments import Segments
from edgekit.device.runtime.agent.voice import Phonemes
from edgekit.device.runtime.application import pictures
from edgekit.device.runtime.application.loaded import Loaded
from edgekit.device.runtime.application.pictures import Class
from edgekit.device.runtime.application.speech import speak, subtitles, transcript_of
from edgekit.device.runtime.application.texts import Text

Result = TypeVar("Result")


class Results:
    """The methods of a model that was compiled with a task; InputError if it was for another."""

    def _on_current(self, work: Callable[[Loaded], Result]) -> Result:
        """Runs `work` with the release in service."""
        raise NotImplementedError

    def _current(self) -> ContextManager[Loaded]:
        """The release in service, which stays loaded meanwhile."""
        raise NotImplementedError

    def _note_inference(self, loaded: Loaded) -> None:
        """What follows each inference."""
        raise NotImplementedError

    def detect(self, frame: Any, width: int = 0, height: int = 0) -> List[Box]:
        """The boxes of a detector in a picture, best first, in its pixels.

        `frame` is an array [height, width, 3] of bytes, red first, or the bytes of one whose size
        is given. InputError if the model is not a detector, or if the sizes do not fit.
        """
        return self._on_current(lambda loaded: pictures.detect(loaded, frame, width, height))

    def classify(self, frame: Any, width: int = 0, height: int = 0, top: int = 5) -> List[Class]:
        """The `top` best classes of a picture or text, best first; `frame`: that, as in detect."""
        return self._on_current(lambda loaded: pictures.classify(loaded, frame, width, height, top))

    def pose(self, frame: Any, width: int = 0, height: int = 0) -> List[Pose]:
        """People or animals in a picture, best first: boxes and points; `frame` as in `detect`."""
        return self._on_current(lambda loaded: pictures.pose(loaded, frame, width, height))

    def segment(self, frame: Any, width: int = 0, height: int = 0) -> Segments:
        """The class of each pixel of a picture, and their shares; `frame` as in `detect`."""
        return self._on_current(lambda loaded: pictures.segment(loaded, frame, width, height))

    def image(self, frame: Any, width: int = 0, height: int = 0) -> Image:
        """The picture that a model makes of one, in its proportions; `frame` as in `detect`."""
        return self._on_current(lambda loaded: pictures.image(loaded, frame, width, height))

    def instances(self, frame: Any, width: int = 0, height: int = 0) -> List[Instance]:
        """The objects in a picture with their pixels, best first; `frame` as in `detect`."""
        return self._on_current(lambda loaded: pictures.instances(loaded, frame, width, height))

    def obb(self, frame: Any, width: int = 0, height: int = 0) -> List[Rotated]:
        """The rotated boxes in a picture with their corners, best first; `frame` as in `detect`."""
        return self._on_current(lambda loaded: pictures.obb(loaded, frame, width, height))

    def embed(self, frame: Any, width: int = 0, height: int = 0) -> List[float]:
        """The vector of a picture or a text, of length 1; `frame` as in `classify`. Of a sound,
        `frame` is its samples, as in `transcribe`."""
        return self._on_current(lambda loaded: pictures.embed(loaded, frame, width, height))

    def generate(
        self,
        prompt: Any,
        *,
        max_tokens: int = 0,
        temperature: float = 0.0,
        top_k: int = 40,
        top_p: float = 1.0,
        seed: int = 0,
        stop: Sequence[str] = (),
    ) -> Text:
        """The text with which a language model continues `prompt`, or its answer to the messages of
        a conversation: `[{"role": "user", "content": "..."}]`. Iterate over it for its pieces.

        Tokens are the most likely ones, or drawn if `temperature` is above 0. The text ends before
        any of `stop`, after `max_tokens`, or where the context is full. InputError for a prompt
        that does not fit, or options out of range.
        """
        asked = {"most": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p,
                 "seed": seed, "stop": list(stop)}  # fmt: skip
        sampling = sampling_of(asked, "generate")
        return Text(self._current, self._note_inference, prompt, sampling)

    def ocr(self, frame: Any, width: int = 0, height: int = 0) -> Line:
        """The line of text in a picture; `frame` as in `detect`."""
        return self._on_current(lambda loaded: pictures.ocr(loaded, frame, width, height))

    def transcribe(self, samples: Sequence[float]) -> Line:
        """The text spoken in `samples`: -1 to 1, of one channel, `model.task.rate` a
        second. InputError if the model is not for that."""
        return self._on_current(lambda loaded: transcript_of(loaded, samples))

    def subtitles(self, samples: Sequence[float]) -> List[Subtitle]:
        """The same in parts, each with its start and end in seconds. InputError for a model without
        times among its tokens, as Whisper's has."""
        return self._on_current(lambda loaded: subtitles(loaded, samples))

    def speak(self, phonemes: Phonemes) -> "array[float]":
        """The samples that say `phonemes`, a text of them or their numbers: -1 to 1, of one
        channel, `model.task.rate` a second. InputError for phonemes that the voice has not, or if
        the model is no voice."""
        return self._on_current(lambda loaded: speak(loaded, phonemes))

    def read(
        self,
        frame: Any,
        recognizer: Optional[Results] = None,
        width: int = 0,
        height: int = 0,
    ) -> List[TextLine]:
        """The lines of text in the boxes that this model finds in a picture, in the order of
        reading, as `recognizer.ocr` reads them, by default this model's own; `frame` as in
        `detect`."""
        page = pictures.crop_of(frame, width, height)
        boxes = self._on_current(lambda loaded: pictures.boxes(loaded, page))
        return read_page(page, boxes, lambda part: (recognizer or self).ocr(*part))
