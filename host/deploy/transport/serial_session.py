"""A session with our agent on the board: requests and answers over an unreliable line."""

from __future__ import annotations

import contextlib
import secrets
import time
from typing import Annotated, Any, NotRequired, TypedDict, TypeVar

from msgspec import Meta

from edgekit.device.runtime.agent import messages
from edgekit.device.runtime.agent.console import SILENCE_SECONDS
from edgekit.device.runtime.agent.messages import BrokenStreamError, Message, MessageChannel
from edgekit.host.common.decode import Count, NotAnAnswerError, Text, decode
from edgekit.host.deploy.transport.serial_line import Line, LineLostError, SerialTarget
from edgekit.host.deploy.transport.serial_login import Shell

LOST_SECONDS = 15.0  # without a valid frame while waiting for one
IDLE_SECONDS = SILENCE_SECONDS - 10.0  # after which the board may have dropped us
_PING_SECONDS = 5.0
_PING_IDLE = 2.0
_LEAVE_SECONDS = 2.0
_T = TypeVar("_T")
_POLL_SECONDS = 0.5  # upper bound on how long `cancel` goes unnoticed


class RequestFailedError(Exception):
    """The board could not fulfill the request; the message gives the reason."""


class LateError(Exception):
    """The call's deadline has passed."""


class CancelledError(Exception):
    """Another thread is closing the line."""


class Ready(TypedDict):
    """Payload of READY: the offset at which a transfer continues, and the file's identity."""

    offset: Count
    sha256: NotRequired[Text]
    identity: NotRequired[Text]


class Whole(TypedDict):
    """Final payload of DATA: the hash of the complete file."""

    sha256: Text


class Exit(TypedDict):
    code: Annotated[int, Meta(ge=-255, le=255)]


class _Found(TypedDict):
    found: Text


def answer(message: Message, kind: type[_T]) -> _T:
    """Decodes a message as `kind`; raises RefusedError."""
    try:
        return decode(message.payload, kind)
    except NotAnAnswerError as error:
        raise RequestFailedError(f"the agent answered unexpectedly: {error}") from None


def refusal(message: Message) -> RequestFailedError:
    """Converts the board's refusal."""
    return RequestFailedError(answer(message, _Found)["found"])


class SerialSession:
    """Opens the line, logs in and starts our agent before `end`; `cut` if this is a reconnect.

    Raises the errors of Line and Shell, RefusedError if `root` cannot be created and, like all
    waiting methods, LineLostError and LateError.
    """

    def __init__(self, target: SerialTarget, root: str, end: float, cut: bool = False) -> None:
        self._cancelled = False
        self._line = Line(target)
        self._shell = Shell(self._line, target, end)
        try:
            self._shell.reach_shell(cut)
            self.python = self._shell.find_python()
            session = secrets.randbits(32)
            self._shell.start_agent(self.python, root, session)
            self._channel = MessageChannel(session, time.monotonic(), caller=True)
            self._arrived: list[Message] = []
            self._spoke_at = 0.0
            self.send(messages.PING)
            self.expect(messages.READY, end)
        except BaseException:
            self.close()
            raise

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last valid frame from the board."""
        return time.monotonic() - self._channel.link.heard_at

    def send(self, kind: bytes, payload: bytes = b"", document: Any = None) -> None:
        """Queues a message; `document` is sent as JSON."""
        self._channel.send(kind, payload, document)

    def check(self, end: float) -> None:
        """Checks that the board is alive if it has been silent for a while; raises
        LineLostError."""
        if self.idle_seconds > IDLE_SECONDS:
            raise LineLostError("the agent has exited")
        if self.idle_seconds > _PING_IDLE:
            self.send(messages.PING)
            self.drain(0, min(end, time.monotonic() + _PING_SECONDS))

    def next(self, end: float) -> Message:
        """Returns the board's next message, which may be a refusal."""
        while not self._arrived:
            self._pump(end)
        return self._arrived.pop(0)

    def expect(self, kind: bytes, end: float) -> Message:
        """Returns the next message, which must be of `kind`. Raises RefusedError on a refusal."""
        message = self.next(end)
        if message.kind == messages.FAILED:
            raise refusal(message)
        if message.kind != kind:
            raise LineLostError(f"an answer out of order ({message.kind!r})")
        return message

    def drain(self, below: int, end: float) -> None:
        """Waits until at most `below` bytes are unacknowledged. Raises RefusedError."""
        while self._channel.link.backlog > below:
            self._pump(end)
            if self._arrived and self._arrived[0].kind == messages.FAILED:
                self.expect(messages.FAILED, end)

    def cancel(self) -> None:
        """Makes a call waiting in another thread raise CancelledError soon."""
        self._cancelled = True

    def close(self) -> None:
        """Restores the console to its original state."""
        with contextlib.suppress(LineLostError):
            self._shell.leave(_LEAVE_SECONDS)
        self._line.close()

    def _pump(self, end: float) -> None:
        """Writes pending data and waits briefly for input."""
        now = time.monotonic()
        link = self._channel.link
        if self._cancelled:
            raise CancelledError("the connection was closed meanwhile")
        if now >= end:
            raise LateError
        if now - link.heard_at > LOST_SECONDS:
            raise LineLostError(f"no answer for {LOST_SECONDS:g} s")
        if now - max(link.heard_at, self._spoke_at) > _PING_SECONDS:
            self.send(messages.PING)  # shows each side that the other is alive
        for frame in link.output(now):
            self._line.write(frame)
            self._spoke_at = time.monotonic()
        wake = link.wake_at()
        patience = min(end, now + _POLL_SECONDS, end if wake is None else wake)
        data = self._line.read(max(0.0, patience - time.monotonic()))
        try:
            self._arrived += self._channel.receive(data, time.monotonic())
        except BrokenStreamError as error:
            raise LineLostError(str(error)) from None
