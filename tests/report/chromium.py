"""A real Chromium for tests, controlled through its debugging pipe, without a package or driver."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.services import lack

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE = 180  # seconds of silence that end a hang; a page takes a few seconds on a busy machine

_KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Escape": 27, "Tab": 9}


def find() -> str | None:
    """Return the path of Chromium: the value of CHROMIUM, or the first Chromium on the PATH."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def require_browser() -> str:
    """The path of Chromium; without it, the test skips, or fails in continuous integration."""
    return find() or lack(f"no browser: none of {', '.join(NAMES)} is on the path")


class Chromium:
    """A browser without a window; `with Chromium(path) as browser: tab = browser.open(url)`."""

    def __init__(self, path: str):
        self.profile = tempfile.TemporaryDirectory(prefix="isoscope-chromium-", ignore_cleanup_errors=True)
        read_here, write_there = os.pipe()
        read_there, write_here = os.pipe()

        def pipes_in_place() -> None:  # Chromium reads from 3 and writes to 4
            there = os.dup(read_there), os.dup(write_there)
            os.dup2(there[0], 3)
            os.dup2(there[1], 4)

        options = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}"]
        options += ["--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio"]
        options += ["--disable-background-networking", "--disable-component-update", "--disable-extensions"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            options.append("--no-sandbox")
        self.process = subprocess.Popen(
            [path, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=pipes_in_place,
            close_fds=False,
        )
        os.close(read_there)
        os.close(write_there)
        self.open_readers, self.writing = read_here, write_here
        self.buffer, self.number = b"", 0
        self.tabs: dict[str, Tab] = {}

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.send("Browser.close")
            self.process.wait(_PATIENCE)
        except (OSError, AssertionError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.open_readers)
        os.close(self.writing)
        self.profile.cleanup()

    def open(self, url: str, *, width: int = 1280, height: int = 900, scripts: bool = True, dark: bool = False) -> Tab:
        """Open a page in a new tab, and wait until it is loaded."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self.tabs[session] = Tab(self, session, target)
        for domain in ("Page", "Runtime", "Network", "Log"):
            tab.send(f"{domain}.enable")
        tab.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        tab.send("Emulation.setEmulatedMedia", features=[scheme])
        tab.send("Emulation.setScriptExecutionDisabled", value=not scripts)
        tab.send("Page.navigate", url=url)
        self.wait(lambda: "Page.loadEventFired" in tab.heard)
        return tab

    def send(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        """Send a command and return its answer."""
        self.number += 1
        told = {"id": self.number, "method": method, "params": parameters}
        os.write(self.writing, json.dumps(told | ({"sessionId": session} if session else {})).encode() + b"\0")
        answers: list[Any] = []
        number = self.number
        self.wait(lambda: bool(answers), lambda said: answers.append(said) if said.get("id") == number else None)
        assert "error" not in answers[0], f"{method}: {answers[0]['error']}"
        return answers[0]["result"]

    def wait(self, done: Any, take: Any = lambda said: None) -> None:
        """Process messages until `done()` is true."""
        until = time.monotonic() + _PATIENCE
        while not done():
            ready = select.select([self.open_readers], [], [], max(until - time.monotonic(), 0))[0]
            if not ready:
                self.process.kill()  # the next tests of this browser fail at once
            assert ready, f"Chromium said nothing for {_PATIENCE} seconds"
            part = os.read(self.open_readers, 1 << 20)
            assert part, "Chromium went away"
            *whole, self.buffer = (self.buffer + part).split(b"\0")
            for message in whole:
                said = json.loads(message)
                take(said)
                if said.get("sessionId") in self.tabs and "method" in said:
                    self.tabs[said["sessionId"]].hear(said["method"], said["params"])


class Tab:
    """A page, with its console messages and network requests."""

    def __init__(self, browser: Chromium, session: str, target: str):
        self.browser, self.session, self.target = browser, session, target
        self.heard: list[str] = []
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def hear(self, method: str, said: dict[str, Any]) -> None:
        self.heard.append(method)
        if method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(said["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(said["args"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.complaints.append(said["entry"]["text"])

    def send(self, method: str, **parameters: Any) -> Any:
        return self.browser.send(method, self.session, **parameters)

    def close(self) -> None:
        self.browser.send("Target.closeTarget", targetId=self.target)
        del self.browser.tabs[self.session]

    def resize(self, width: int, height: int = 900, dense: float = 1, touch: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": dense, "mobile": touch}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        self.send("Emulation.setTouchEmulationEnabled", enabled=touch)

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; promises are awaited."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def finish(self) -> None:
        """Wait until all requested changes are drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def middle(self, selector: str, index: int = 0) -> tuple[float, float]:
        """Scroll an element into view, and return its center."""
        found = f"document.querySelectorAll({json.dumps(selector)})[{index}]"
        self.run(f"{found}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        x, y = self.run(f"(r => [r.left + r.width / 2, r.top + r.height / 2])({found}.getBoundingClientRect())")
        return x, y

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def hover(self, x: float, y: float) -> None:
        self.mouse("mouseMoved", x, y)
        self.finish()

    def drag(self, x: float, y: float, to_x: float, to_y: float) -> None:
        held = {"button": "left", "buttons": 1, "clickCount": 1}
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, **held)
        for step in (0.3, 0.6, 1.0):
            self.mouse("mouseMoved", x + step * (to_x - x), y + step * (to_y - y), button="left", buttons=1)
        self.mouse("mouseReleased", to_x, to_y, **held)
        self.finish()

    def click(self, selector: str, index: int = 0) -> None:
        x, y = self.middle(selector, index)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)
        self.finish()

    def press(self, key: str) -> None:
        text = key if len(key) == 1 else ""
        code = _KEYS.get(key, ord(key.upper()[0]))
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, windowsVirtualKeyCode=code)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)
        self.finish()

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)
        self.finish()

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Save a screenshot."""
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        """Print the page as PDF, in the paper size that its styles request."""
        printed = self.send("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        return base64.b64decode(printed["data"])
