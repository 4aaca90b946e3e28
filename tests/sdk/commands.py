"""The command line without a process of its own, which would spend most of a test's time on its
start. Programs that are processes are in tests/hostile, tests/crash and tests/interop/test_tls."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator

from escrowmq.cli.main import main


def run(*words: str, nameserver: str = "", typed: str = "") -> subprocess.CompletedProcess[str]:
    """What the program with these arguments says, and its exit code."""
    said, complained = io.StringIO(), io.StringIO()
    with (
        _surroundings(nameserver, typed),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(complained),
    ):
        try:
            code = main(words)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    return subprocess.CompletedProcess(words, code, said.getvalue(), complained.getvalue())


@contextlib.contextmanager
def _surroundings(nameserver: str, typed: str) -> Iterator[None]:
    before, stdin = os.environ.get("NAMESRV_ADDR"), sys.stdin
    os.environ["NAMESRV_ADDR"], sys.stdin = nameserver, io.StringIO(typed)
    try:
        yield
    finally:
        sys.stdin = stdin
        if before is None:
            del os.environ["NAMESRV_ADDR"]
        else:
            os.environ["NAMESRV_ADDR"] = before
