"""What a page that n browsers follow costs the server: CPU of its process, and bytes sent.

    python benchmarks/console_viewers.py --viewers 1 20 --seconds 20 --path /

Each number of viewers is measured twice: once each of them asks every two seconds, as pages without
an EventSource do, once each follows the page. Prints one table."""

from __future__ import annotations

import argparse
import http.client
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path

import escrowmq

EVERY_S = 2.0


def cpu_s(pid: int) -> float:
    """What a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Viewer(threading.Thread):
    """A browser that looks at one page."""

    def __init__(self, address: str, password: str, path: str, *, follows: bool) -> None:
        super().__init__(daemon=True)
        self._link = http.client.HTTPConnection(address, timeout=30)
        form = urllib.parse.urlencode({"name": "admin", "password": password, "back": "/"})
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        self._link.request("POST", "/login", form, kind)
        answer = self._link.getresponse()
        answer.read()
        self._headers = {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}
        self._path, self._follows = path, follows
        self.is_over = False
        self.size = 0

    def run(self) -> None:
        """Look, until it is over."""
        if self._follows:
            self._link.request("GET", self._path, headers={
                **self._headers, "Accept": "text/event-stream"})  # fmt: skip
            answer = self._link.getresponse()
            assert answer.status == 200, answer.status
            while not self.is_over:
                self.size += len(answer.readline())
            return
        while not self.is_over:
            self._link.request("GET", self._path, headers={**self._headers, "X-Live": "1"})
            self.size += len(self._link.getresponse().read())
            time.sleep(EVERY_S)


def measure(child: int, viewers: list[Viewer], seconds: float) -> tuple[float, float]:
    """Percent of a core, and bytes a second."""
    for viewer in viewers:
        viewer.start()
        time.sleep(EVERY_S / len(viewers))  # they do not come at the same moment
    time.sleep(EVERY_S)
    sizes, used_s, began_s = sum(v.size for v in viewers), cpu_s(child), time.monotonic()
    time.sleep(seconds)
    span_s = time.monotonic() - began_s
    found = 100 * (cpu_s(child) - used_s) / span_s
    rate = (sum(v.size for v in viewers) - sizes) / span_s
    for viewer in viewers:
        viewer.is_over = True
    for viewer in viewers:
        viewer.join(10)
    return found, rate


def main() -> int:
    """Start a server, and look at it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--viewers", type=int, nargs="*", default=[1, 20])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--path", default="/")
    parser.add_argument("--topics", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "escrowmq", "--log-level", "error", "serve", "--data", folder,
            "--nameserver-port", "0", "--broker-port", "0", "--http-port", "0",
        ]  # fmt: skip
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as child:
            try:
                assert child.stdout is not None
                doors = dict(re.findall(r"(\w+)=(\S+)", child.stdout.readline()))
                password = (Path(folder) / "config" / "consolePassword").read_text().strip()
                with escrowmq.Admin(doors["nameserver"]) as admin:
                    for nth in range(arguments.topics):
                        admin.topics.create(f"t-{nth}", queues=1)
                idle_s = cpu_s(child.pid)
                time.sleep(arguments.seconds)
                share = 100 * (cpu_s(child.pid) - idle_s) / arguments.seconds
                print("| viewers | how | % of a core | KiB/s |")
                print("|---|---|---|---|")
                print(f"| 0 | | {share:.2f} | |")
                for count in arguments.viewers:
                    for follows in (False, True):
                        viewers = [
                            Viewer(doors["http"], password, arguments.path, follows=follows)
                            for _ in range(count)
                        ]
                        share, rate = measure(child.pid, viewers, arguments.seconds)
                        how = "follow" if follows else "ask"
                        print(f"| {count} | {how} | {share:.2f} | {rate / 1024:.1f} |", flush=True)
            finally:
                child.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
