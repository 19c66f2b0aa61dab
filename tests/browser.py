"""A headless Chromium that opens one page, spoken to over pipes: no driver, no open port."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless",
    "--no-sandbox",  # a sandbox needs rights that root in a container does not have
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Browser:
    """One page of a running browser, by the Chrome DevTools Protocol.

    Attributes:
        events: what the page and the network did since the browser started, as
            (method, parameters).
    """

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, os.fdopen(receive, "rb")
        self._number = 0
        self._session: str | None = None
        self.events: list[tuple[str, dict[str, Any]]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command and returns its result; fails the test if the browser refuses it."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self.events.append((answer["method"], answer["params"]))
        assert "error" not in answer, f"{method}: {answer.get('error')}"
        return answer["result"]

    def open(self, path: Path, width: int, dark: bool = False) -> None:
        """Opens a file without any network, in a window of that many CSS pixels."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=844,
            deviceScaleFactor=2,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=0,
            uploadThroughput=0,
        )
        self.events.clear()
        self.ask("Page.navigate", url=path.absolute().as_uri())
        while not any(method == "Page.loadEventFired" for method, _ in self.events):
            answer = self._read()
            self.events.append((answer["method"], answer["params"]))

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Saves the whole page as a PNG."""
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(b64decode(shot["data"]))

    def _read(self) -> dict[str, Any]:
        message = bytearray()
        while (byte := self._receive.read(1)) != b"\0":
            assert byte, "the browser went away"
            message += byte
        return json.loads(message)


@contextlib.contextmanager
def running_browser() -> Iterator[Browser]:
    """Starts a browser with a profile of its own, and ends it."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.fail(
            "this test opens the privacy report in a real browser and found none "
            f"({', '.join(_NAMES)}): install it, on Debian and Ubuntu with "
            "`apt-get install chromium`.",
            pytrace=False,
        )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        commands, send = os.pipe()
        receive, answers = os.pipe()

        def connect() -> None:  # the browser reads from 3 and writes to 4
            os.dup2(commands, 103)
            os.dup2(answers, 104)
            os.dup2(103, 3)
            os.dup2(104, 4)

        child = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={profile}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=connect,
            close_fds=False,
        )
        os.close(commands)
        os.close(answers)
        try:
            yield Browser(send, receive)
        finally:
            child.kill()
            child.wait()
            os.close(send)
