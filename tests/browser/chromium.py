"""Chromium without a screen, spoken to by its own protocol over two pipes."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

PATIENCE_S: Final = 60
_END: Final = b"\0"
NAMES: Final = ("chromium", "chromium-browser", "google-chrome")


def program() -> str | None:
    """The browser of this machine; None without one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Chromium:
    """One browser with one page."""

    def __init__(self, folder: Path) -> None:
        found = program()
        assert found is not None
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # The browser reads from descriptor 3 and writes to 4.
        script = f'exec {found} "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "chromium", "--headless=new", "--no-sandbox", "--disable-gpu",
             "--remote-debugging-pipe", "--hide-scrollbars", f"--user-data-dir={folder}",
             "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "about:blank"],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._rest = b""
        self._number = 0
        self.errors: list[str] = []
        """What the page complained of: exceptions, and what the content-security policy refused."""
        targets = self._call("Target.getTargets", {})["targetInfos"]
        target = next(one for one in targets if one["type"] == "page")["targetId"]
        self._session = self._call(
            "Target.attachToTarget", {"targetId": target, "flatten": True}
        )["sessionId"]  # fmt: skip
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    # -- the protocol ----------------------------------------------------------------------------

    def call(self, method: str, **fields: Any) -> dict[str, Any]:
        """Ask the page's side of the browser."""
        return self._call(method, fields, session=self._session)

    def _call(self, method: str, fields: Mapping[str, Any], *, session: str = "") -> dict[str, Any]:
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": dict(fields)}
        if session:
            asked["sessionId"] = session
        os.write(self._write, json.dumps(asked).encode() + _END)
        while True:
            said = self._next()
            if said.get("id") == self._number:
                assert "error" not in said, said["error"]
                result: dict[str, Any] = said["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while _END not in self._rest:
            ready, _, _ = select.select([self._read], [], [], PATIENCE_S)
            assert ready, f"the browser has said nothing for {PATIENCE_S} s"
            got = os.read(self._read, 1 << 20)
            assert got, "the browser has ended"
            self._rest += got
        line, _, self._rest = self._rest.partition(_END)
        said: dict[str, Any] = json.loads(line)
        self._note(said)
        return said

    def _note(self, said: dict[str, Any]) -> None:
        fields = said.get("params", {})
        if said.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(fields["exceptionDetails"].get("text")))
        if said.get("method") == "Log.entryAdded" and fields["entry"]["level"] == "error":
            self.errors.append(fields["entry"]["text"])

    # -- what people do --------------------------------------------------------------------------

    def open(self, address: str) -> None:
        """Go to a page, and wait until it is there."""
        self.call("Page.navigate", url=address)
        self.until_loaded()

    def until_loaded(self) -> None:
        """Wait for the page that is on its way."""
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def type(self, text: str) -> None:
        """Letters, as a keyboard sends them."""
        for letter in text:
            self.call("Input.dispatchKeyEvent", type="keyDown", text=letter, key=letter)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=letter)

    def press(self, key: str) -> None:
        """Tab, Enter, or Escape."""
        code = {"Tab": 9, "Enter": 13, "Escape": 27}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key,
                  windowsVirtualKeyCode=code, **text)  # fmt: skip
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key,
                  windowsVirtualKeyCode=code)  # fmt: skip

    def look(self, *, width: int = 1280, height: int = 900, is_dark: bool = False) -> None:
        """How wide its window is, and what colours its owner likes."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path, *, is_whole: bool = False) -> None:
        """What is seen, as a PNG."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        os.close(self._read)
        os.close(self._write)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()
