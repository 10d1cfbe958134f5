"""Headless Chromium, driven over its DevTools pipe: no driver, no network."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from tests.support.patience import PATIENCE

_PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_KEYS = {"Enter": 13, "Tab": 9, "Home": 36, "End": 35, "ArrowUp": 38, "ArrowDown": 40}


def find_browser() -> str | None:
    """Path of the browser, or None if not installed."""
    return next((found for name in _PROGRAMS if (found := shutil.which(name))), None)


@contextlib.contextmanager
def running_browser(folder: Path) -> Iterator[Browser]:
    """A browser with its own profile in `folder`, closed on exit."""
    program = find_browser()
    assert program
    commands, our_end = os.pipe()
    answers, their_end = os.pipe()
    line = f'exec "$0" "$@" 3<&{commands} 4>&{their_end}'
    arguments = (program, *_FLAGS, f"--user-data-dir={folder}", "about:blank")
    with (folder / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", line, *arguments],
            pass_fds=(commands, their_end),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    os.close(commands)
    os.close(their_end)
    try:
        yield Browser(our_end, answers)
    finally:
        os.close(our_end)  # the browser exits when its pipe closes
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(answers)


class Browser:
    """One window. `requests` are the addresses it fetched; `complaints` are console messages:
    script errors and violations of the page's policy."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._arrivals = select.poll()  # unlike select, also of descriptors above 1023
        self._arrivals.register(answers, select.POLLIN)
        self._number = 0
        self._rest = b""
        self._session = ""
        self._loaded = 0
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Security"):
            self._ask(f"{domain}.enable")
        # Servers in tests sign their certificates themselves
        self._ask("Security.setIgnoreCertificateErrors", ignore=True)

    def open(
        self, page: Path | str, width: int = 1280, height: int = 900, dark: bool = False
    ) -> None:
        """Open a file or an address, and wait until it has loaded completely."""
        phone = width < 600
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self._ask("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self.requests.clear()
        self.complaints.clear()
        loaded = self._loaded
        self._ask("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while self._loaded == loaded:
            self._message()

    def value(self, expression: str) -> Any:
        """Evaluate an expression in the page."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def texts(self, selector: str) -> list[str]:
        """The visible text of the matching elements."""
        shown = "filter(e => e.checkVisibility()).map(e => e.textContent)"
        return list(self.value(f"[...document.querySelectorAll({json.dumps(selector)})].{shown}"))

    def click(self, selector: str) -> None:
        """Click the center of an element."""
        where = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{where}.scrollIntoView({{block: 'center'}})")
        box = self.value(f"{where}.getBoundingClientRect().toJSON()")
        middle = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        for kind in ("mousePressed", "mouseReleased"):
            self._ask("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **middle)

    def press(self, *keys: str) -> None:
        """Press keys; they go to the focused element."""
        for key in keys:
            about = {"key": key, "windowsVirtualKeyCode": _KEYS.get(key, 0)}
            text = {"text": "\r"} if key == "Enter" else {}
            if key not in _KEYS:
                text = {"text": key}
            self._ask("Input.dispatchKeyEvent", type="keyDown", **about, **text)
            self._ask("Input.dispatchKeyEvent", type="keyUp", **about)

    def picture(self, file: Path, kind: Literal["png", "webp"] = "png") -> None:
        """Save a full-page screenshot."""
        size = self._ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self._ask(
            "Page.captureScreenshot", format=kind, captureBeyondViewport=True, clip=clip
        )
        file.write_bytes(base64.b64decode(shot["data"]))

    def _ask(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        wanted = self._number
        message = {"id": wanted, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == wanted:
                assert "error" not in answer, answer
                return answer["result"]

    def _message(self) -> Any:
        """Read the next message and record page events."""
        until = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            left = max(0, until - time.monotonic())
            assert self._arrivals.poll(1000 * left), "the browser is silent"
            some = os.read(self._answers, 1 << 16)
            assert some, "the browser ended"
            self._rest += some
        one, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(one)
        about = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded += 1
            case "Network.requestWillBeSent":
                self.requests.append(about["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(about["exceptionDetails"]))
            case "Log.entryAdded":
                self.complaints.append(about["entry"]["text"])
        return message
