"""Processes whose threads gevent has replaced: the plain clients work there, and hold nobody up."""

from __future__ import annotations

import contextlib
import http.client
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from escrowmq.client import greenlets
from tests.frameworks.patched import SCENES
from tests.interop.process import Process, until
from tests.interop.servers import Server

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"transactionTimeOut": 500, "transactionCheckInterval": 500}
    made = Server("escrow", tmp_path_factory.mktemp("server"), settings).start()
    yield made
    made.stop()


@pytest.mark.parametrize("scene", SCENES)
def test_in_a_patched_process(server: Server, scene: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.frameworks.patched", scene,
         server.nameserver],
        cwd=ROOT, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.stdout == "held\n", done.stderr
    assert done.returncode == 0, done.stderr


def test_a_process_that_is_not_patched_has_threads() -> None:
    assert not greenlets.is_patched()
    assert greenlets.make_thread_identifier() is threading.get_ident
    assert not isinstance(greenlets.make_latch(), greenlets.HubLatch)


def test_a_request_at_gunicorn_waits_for_another_one(server: Server, tmp_path: Path) -> None:
    """One worker, so that it would wait for ever if it held the other one up."""
    gunicorn = Process(
        [sys.executable, "-m", "gunicorn", "-k", "gevent", "--workers", "1", "--bind",
         "127.0.0.1:0", "tests.frameworks.hello_wsgi"],
        folder=tmp_path, name="gunicorn",
        environment={"PYTHONPATH": str(ROOT), "HELLO_NAMESERVER": server.nameserver},
    )  # fmt: skip

    def port() -> str | None:
        assert gunicorn.exit_code is None, gunicorn.last_errors()
        found = re.search(r"Listening at: http://127.0.0.1:(\d+)", gunicorn.last_errors())
        return found[1] if found and "Booting worker" in gunicorn.last_errors() else None

    def get(path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", int(at), timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            assert answer.status == 200
            return answer.read()

    try:
        at = until("gunicorn listens", port, within_s=60)
        answers: list[bytes] = []
        waiting = threading.Thread(target=lambda: answers.append(get("/wait")))
        waiting.start()
        assert get("/send")
        waiting.join(60)
        assert answers == [b"hello"]
    finally:
        gunicorn.stop(within_s=20)
    assert gunicorn.exit_code == 0, gunicorn.last_errors()
