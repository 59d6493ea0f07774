"""A headless Chromium, driven by the DevTools protocol through a pipe.

Source: https://chromedevtools.github.io/devtools-protocol/ and, for the pipe, content/browser/devtools
of Chromium: messages are JSON, each followed by a zero byte; the browser reads descriptor 3 and writes 4.
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Self

PROGRAM = "/usr/bin/chromium"
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--ignore-certificate-errors", "--hide-scrollbars"),
    *("--force-color-profile=srgb", "--remote-debugging-pipe"),
)
TIMEOUT_SEC = 60.0
KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowRight": 39, " ": 32}
FRAME = """document.querySelector("iframe[name*='/podslice']")"""
# of the page, which Cockpit's shell shows in a frame, if it shows it
IN_PAGE = f"""
(() => {{
  const frame = {FRAME};
  const window_ = frame ? frame.contentWindow : window;
  const document_ = window_.document;
  return (async (window, document) => {{ %s }})(window_, document_);
}})()
"""
# ends, too, when the page is no longer shown, or the shell has one now
WAIT = f"""
const until = performance.now() + %d;
for (;;) {{
  let value;
  try {{ value = %s; }} catch (error) {{ value = null; }}
  if (value) return value;
  const isReplaced = !document.defaultView || (document === window.top.document && {FRAME});
  if (isReplaced || performance.now() > until) return "%s";
  await new Promise(resolve => setTimeout(resolve, 30));
}}
"""
TIMED_OUT = "-- timed out --"
# the center of an element; until the page is asked whether it was hit, it gets no click on something else
AIM = """await (async () => {
  const all = [...document.querySelectorAll(%s)];
  const one = all.find(each => each.textContent.includes(%s) && each.getClientRects().length && !each.disabled);
  if (!one) return null;
  one.scrollIntoView({block: "center"});
  const box = one.getBoundingClientRect();
  await new Promise(window.requestAnimationFrame);
  if (one.getBoundingClientRect().y !== box.y) return null;  // it moves
  let isHit = false;
  const guard = event => {
    if (isHit) return;
    const isThere = one.contains(event.target);
    isHit = isThere && event.type === "click";
    if (isThere) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  const kinds = ["mousedown", "mouseup", "click"];
  kinds.forEach(kind => window.addEventListener(kind, guard, true));
  window.hasHit = () => {
    kinds.forEach(kind => window.removeEventListener(kind, guard, true));
    return isHit;
  };
  const frame = window.frameElement?.getBoundingClientRect() ?? {x: 0, y: 0};
  return {x: frame.x + box.x + box.width / 2, y: frame.y + box.y + box.height / 2};
})()"""


class BrowserError(AssertionError):
    """The page did not do what was expected; with its text and its messages."""


class Browser:
    """One browser with one tab; `prefix` is a command that starts it, for instance in another network."""

    def __init__(self, prefix: tuple[str, ...] = ()) -> None:
        self._directory = tempfile.TemporaryDirectory(
            prefix="podslice-browser.", ignore_cleanup_errors=True
        )
        self.messages: deque[str] = deque(maxlen=200)
        """Messages of the console and the content security policy."""
        to_browser, from_us = os.pipe()
        to_us, from_browser = os.pipe()
        script = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
        self._process = subprocess.Popen(
            [
                *("bash", "-c", script, "sh", *prefix, PROGRAM, *OPTIONS),
                *(f"--user-data-dir={self._directory.name}", "about:blank"),
            ],
            env={**os.environ, "TMPDIR": self._directory.name},
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._writes, self._reads = from_us, to_us
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        made = self.call("Target.createTarget", url="about:blank")
        attached = self.call("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait()
        os.close(self._writes)
        os.close(self._reads)
        self._directory.cleanup()

    def call(self, method: str, **parameters: object) -> dict:
        """Call a method of the protocol, and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") != self._number:
                self._note(answer)
            elif "error" in answer:
                raise BrowserError(f"{method}: {answer['error']}")
            else:
                return answer["result"]

    def _read(self) -> dict:
        while b"\0" not in self._buffer:
            if not select.select([self._reads], [], [], TIMEOUT_SEC)[0]:
                raise BrowserError("the browser does not answer")
            data = os.read(self._reads, 1 << 20)
            if not data:
                raise BrowserError("the browser has ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict) -> None:
        given = event.get("params", {})
        match event.get("method"):
            case "Runtime.consoleAPICalled":
                parts = (str(each.get("value", each.get("description"))) for each in given["args"])
                self.messages.append(f"{given['type']}: {' '.join(parts)}")
            case "Runtime.exceptionThrown":
                detail = given["exceptionDetails"]
                self.messages.append(f"exception: {detail.get('exception', detail)}")
            case "Log.entryAdded":
                entry = given["entry"]
                self.messages.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")

    def open(self, address: str) -> None:
        """Show a page."""
        self.call("Page.navigate", url=address)

    def run(self, script: str) -> object:
        """Run statements in the page, with its `window` and `document`; return what they return."""
        made = self.call(
            "Runtime.evaluate",
            expression=IN_PAGE % script,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        if "exceptionDetails" in made:
            raise BrowserError(f"{script}: {made['exceptionDetails']['exception']['description']}")
        return made["result"].get("value")

    def in_shell(self, script: str, *, waits: bool = False) -> None:
        """Run statements outside of the page, in Cockpit's shell; repeat them until they succeed."""
        deadline = time.monotonic() + (TIMEOUT_SEC if waits else 0)
        while True:
            made = self.call("Runtime.evaluate", expression=script, userGesture=True)
            if "exceptionDetails" not in made:
                return
            if time.monotonic() > deadline:
                raise BrowserError(f"{script}: {made['exceptionDetails']}")
            time.sleep(0.05)

    def wait(self, expression: str) -> object:
        """Wait until an expression is true in the page, whichever that is then; return its value."""
        deadline = time.monotonic() + TIMEOUT_SEC
        while True:
            left = max(deadline - time.monotonic(), 0.1)
            try:
                value = self.run(WAIT % (min(left, 2) * 1000, expression, TIMED_OUT))
            except BrowserError as error:
                # the page was replaced by another one
                value, last = TIMED_OUT, str(error)
            else:
                last = ""
            if value != TIMED_OUT:
                return value
            if time.monotonic() > deadline:
                text = self.run("return document.body.innerText.slice(0, 3000)")
                messages = "\n".join(self.messages)
                raise BrowserError(
                    f"never: {expression}\n{last}\n--- page\n{text}\n--- messages\n{messages}"
                )

    def wait_text(self, text: str) -> None:
        """Wait until the page shows a text."""
        self.wait(f"document.body.innerText.includes({json.dumps(text)})")

    def click(self, selector: str, text: str = "") -> None:
        """Click with the mouse on the first visible element, of those with this text.

        The page may move it meanwhile: a click on something else has no effect, and is repeated.
        """
        deadline = time.monotonic() + TIMEOUT_SEC
        while True:
            found = self.wait(AIM % (json.dumps(selector), json.dumps(text)))
            for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
                buttons = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
                self.call("Input.dispatchMouseEvent", type=kind, **found, **buttons)
            # a page that the click has replaced has no such function
            if self.run("return window.hasHit?.() ?? true"):
                return
            if time.monotonic() > deadline:
                raise BrowserError(f"always moves: {selector} {text}")

    def type(self, selector: str, text: str) -> None:
        """Replace the text of a field, as a user types it."""
        self.click(selector)
        self.run(f"document.querySelector({json.dumps(selector)}).select()")
        self.call("Input.insertText", text=text)

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        more = {"key": key, "code": key if key != " " else "Space", "modifiers": 8 * shift}
        more["windowsVirtualKeyCode"] = KEYS[key]
        down = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **more, **down)
        self.call("Input.dispatchKeyEvent", type="keyUp", **more)

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        """Set the size of the page."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    def be_dark(self, *, dark: bool) -> None:
        """Set the color scheme that the user prefers."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path: Path) -> None:
        """Write what is shown, as a PNG file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
