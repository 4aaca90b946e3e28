"""The embedded server as a process that can be killed and started again on its folder."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

START_S = 60
END_S = 30
_READY = re.compile(r"escrowmq ready nameserver=(\S+) broker=(\S+)(?: http=(\S+))?")


def command(verb: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "escrowmq", verb, *options]


class Server:
    """`escrowmq serve` on ports of its own choice; alive once it is made."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.errors = folder.with_suffix(".err")
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                command("serve", "--data", str(folder), "--nameserver-port", "0",
                        "--broker-port", "0", *options),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )  # fmt: skip
        assert self.process.stdout is not None
        watchdog = threading.Timer(START_S, self.process.kill)
        watchdog.start()
        line = self.process.stdout.readline()
        watchdog.cancel()
        match = _READY.fullmatch(line.strip())
        if match is None:
            self.kill()
        assert match is not None, f"{line!r}\n{self.errors.read_text()}"
        self.nameserver, self.broker, self.http = match[1], match[2], match[3] or ""

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        self.process.kill()
        self._end()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask the process to end; its exit code."""
        self.process.send_signal(number)
        return self._end()

    def _end(self) -> int:
        code = self.process.wait(END_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill()
