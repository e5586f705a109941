"""Headless Chromium, driven by its own protocol over two pipes: no driver is needed, and nothing listens on a port.

Limits: one page at a time. What the page logs, and every request that it makes, is kept.
"""

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_PATIENCE = 120.0


class Browser:
    """A browser with one page."""

    def __init__(self, profile: Path) -> None:
        """Start it, its files in `profile`."""
        assert CHROMIUM is not None
        self.console: list[str] = []
        """Messages, warnings and errors of the page."""
        self.requests: list[str] = []
        """Addresses that it asked for."""
        to_browser, ours = os.pipe()
        theirs, from_browser = os.pipe()[::-1]
        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={profile}")  # fmt: skip
        plumbing = f'exec 3<&{to_browser} 4>&{theirs}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", plumbing, "bash", CHROMIUM, *options, "about:blank"],
            pass_fds=(to_browser, theirs), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(theirs)
        self._in, self._out = os.fdopen(ours, "wb"), from_browser
        self._buffer, self._number, self._session, self._loaded = b"", 0, None, 0
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def open(self, path: Path, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Show a file, and wait until it is loaded."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._ask("Emulation.setEmulatedMedia", features=scheme)
        self.console.clear()
        self.requests.clear()
        seen = self._loaded
        self._ask("Page.navigate", url=path.as_uri())
        self._until(lambda: self._loaded > seen, f"{path} to load")

    def run(self, code: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        found = self._ask("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str) -> Any:
        """The first value of an expression that is true."""
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            if value := self.run(condition):
                return value
            time.sleep(0.05)
        raise AssertionError(f"never true: {condition}; on the console: {self.console}")

    def click(self, selector: str) -> None:
        """A real click into the middle of an element, which must lie uncovered on the page."""
        place = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getBoundingClientRect(); "
            "const x = b.x + b.width / 2, y = b.y + b.height / 2, top = document.elementFromPoint(x, y); "
            "return e === top || e.contains(top) ? [x, y] : null })()"
        )
        assert place, f"{selector} cannot be clicked"
        for kind in ("mousePressed", "mouseReleased"):
            x, y = place
            self._ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """A picture of what is shown, or of the whole page."""
        found = self._ask("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._in.close()
        os.close(self._out)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, method: str, **given: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": given}
        if self._session:
            message["sessionId"] = self._session
        self._in.write(json.dumps(message).encode() + b"\0")
        self._in.flush()
        answers: list[Any] = []
        number = self._number

        def answered() -> bool:
            return bool(answers)

        self._until(answered, method, lambda answer: answers.append(answer) if answer.get("id") == number else None)
        assert "error" not in answers[0], f"{method}: {answers[0]['error']}"
        return answers[0]["result"]

    def _until(self, done: Any, what: str, take: Any = lambda answer: None) -> None:
        while not done():
            part = os.read(self._out, 1 << 20)
            assert part, f"the browser ended while it was asked for {what}"
            *whole, self._buffer = (self._buffer + part).split(b"\0")
            for text in whole:
                message = json.loads(text)
                self._event(message.get("method"), message.get("params", {}))
                take(message)

    def _event(self, name: str | None, params: Any) -> None:
        if name == "Page.loadEventFired":
            self._loaded += 1
        elif name == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif name == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(each.get("value")) for each in params["args"]))
        elif name == "Runtime.exceptionThrown":
            self.console.append(json.dumps(params["exceptionDetails"]))
        elif name == "Log.entryAdded":
            self.console.append(params["entry"]["text"])
