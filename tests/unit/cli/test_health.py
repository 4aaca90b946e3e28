from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest

from escrowmq.cli.main import main


class Answering(BaseHTTPRequestHandler):
    """A server that lives and is not ready."""

    def do_GET(self) -> None:
        is_well = self.path == "/healthz"
        text = b"alive" if is_well else b"read-only: the disk is full"
        self.send_response(200 if is_well else 503)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(name="address")
def make_address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_it_says_what_the_server_says(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["health", address]) == 0
    assert capsys.readouterr().out == "alive\n"
    assert main(["health", "--ready", address]) == 1
    assert capsys.readouterr().err == "read-only: the disk is full\n"
    monkeypatch.setenv("ESCROWMQ_HTTP", address)
    assert main(["health"]) == 0


def test_a_server_that_does_not_answer_and_an_address_that_is_none(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["health", "127.0.0.1:1"]) == 2
    assert "127.0.0.1:1/healthz does not answer" in capsys.readouterr().err
    assert main(["health", "8082"]) == 2
    assert "HOST:PORT" in capsys.readouterr().err


class OtherProtocol(BaseRequestHandler):
    """A server that does not answer by HTTP: of the broker, or of gRPC."""

    def handle(self) -> None:
        self.request.sendall(b"\x00\x00\x12\x04\x00 a frame\r\n\r\n")


def test_a_port_with_another_protocol_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """It ended in a traceback, with the exit code of a problem that the server reports."""
    with ThreadingTCPServer(("127.0.0.1", 0), OtherProtocol) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        assert main(["health", f"127.0.0.1:{server.server_address[1]}"]) == 2
        server.shutdown()
        thread.join()
    assert "/healthz does not answer" in capsys.readouterr().err


def test_a_port_that_no_machine_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "127.0.0.1:99999"]) == 2
    assert "HOST:PORT" in capsys.readouterr().err
