"""Subtitles as files of players: SubRip and WebVTT."""

from __future__ import annotations

from typing import Sequence

from edgekit.device.runtime.agent.dictation import Subtitle


def srt(found: Sequence[Subtitle]) -> str:
    """The form of SubRip."""
    return "\n".join(
        f"{number}\n{_span(each, ',')}\n{each.text}\n" for number, each in enumerate(found, 1)
    )


def vtt(found: Sequence[Subtitle]) -> str:
    """The form of WebVTT."""
    return "\n".join(["WEBVTT\n", *(f"{_span(each, '.')}\n{each.text}\n" for each in found)])


def _span(each: Subtitle, point: str) -> str:
    return f"{_clock(each.start, point)} --> {_clock(each.end, point)}"


def _clock(seconds: float, point: str) -> str:
    whole = round(seconds * 1000)
    minutes = f"{whole // 3600000:02}:{whole // 60000 % 60:02}"
    return f"{minutes}:{whole // 1000 % 60:02}{point}{whole % 1000:03}"
