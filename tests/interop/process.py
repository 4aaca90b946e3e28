"""One foreign process: started, watched line by line, stopped by its own id."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

LINES_MAX: Final = 2_000
T = TypeVar("T")


class ProcessError(Exception):
    """The process ended or stayed silent; the text has the end of what it wrote."""


def until(what: str, look: Callable[[], T | None], *, within_s: float = 60) -> T:
    """The first answer of `look` that is neither None nor false; AssertionError after the time."""
    deadline = time.monotonic() + within_s
    pause = threading.Event()
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}; last seen: {seen!r}"
        pause.wait(0.05)
    return seen


def _end_with_parent() -> None:
    # PR_SET_PDEATHSIG: a test run that is itself killed leaves no JVM behind.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Process:
    """A process whose standard output is read by lines and whose errors go to a file."""

    def __init__(
        self,
        command: list[str],
        *,
        folder: Path,
        name: str,
        environment: Mapping[str, str] | None = None,
        takes_commands: bool = False,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.errors = folder / f"{name}.err"
        self._lines: list[str] = []
        self._has_ended = False
        self._news = threading.Condition()
        with self.errors.open("ab") as errors:
            self._child = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.PIPE if takes_commands else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONFAULTHANDLER": "1", **(environment or {})},
                text=True,
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - it only makes one system call
            )
        self._reader = threading.Thread(target=self._read, name=f"read {name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._child.poll()

    def _read(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as lines:
            for line in lines:
                with self._news:
                    self._lines.append(line.rstrip("\n"))
                    del self._lines[:-LINES_MAX]
                    self._news.notify_all()
        with self._news:
            self._has_ended = True
            self._news.notify_all()

    def wait_line(self, text: str, *, within_s: float) -> str:
        """The first line not taken yet that contains the text; the lines before it are dropped."""
        deadline = time.monotonic() + within_s
        with self._news:
            while True:
                for index, line in enumerate(self._lines):
                    if text in line:
                        del self._lines[: index + 1]
                        return line
                left = deadline - time.monotonic()
                if self._has_ended or left <= 0:
                    break
                self._news.wait(left)
            wrote = "\n".join(self._lines[-20:])
        state = (
            f"ended with {self._child.wait()}" if self._has_ended else f"silent for {within_s} s"
        )
        raise ProcessError(f"{self.name} {state}, no {text!r}\n{wrote}\n{self.last_errors()}")

    def write_line(self, line: str) -> None:
        """Send one line to its standard input."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(line + "\n")
            self._child.stdin.flush()
        except OSError as error:
            raise ProcessError(f"{self.name} is gone\n{self.last_errors()}") from error

    def last_errors(self) -> str:
        """The end of what it wrote to standard error."""
        return self.errors.read_bytes()[-3000:].decode(errors="replace")

    def wait_end(self, *, within_s: float = 30) -> int:
        """Wait until it ends by itself; the exit code."""
        code = self._child.wait(within_s)
        self._close()
        return code

    def stop(self, *, within_s: float = 30) -> int:
        """SIGTERM, and SIGKILL if that is not enough; the exit code."""
        if self._child.poll() is None:
            self._child.terminate()
        try:
            code = self._child.wait(within_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
            code = self._child.wait()
        self._close()
        return code

    def kill(self) -> None:
        """SIGKILL, as a power cut for this process alone."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGKILL)
        self._child.wait()
        self._close()

    def _close(self) -> None:
        self._reader.join(5)
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                with contextlib.suppress(
                    BrokenPipeError
                ):  # a command that the dead process will not read
                    stream.close()
