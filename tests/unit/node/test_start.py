"""What a server loads until it is ready, without a clock: a start to the first send within 0.3 s is
a promise, and nine tenths of it are imports."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.harness.imports import loaded, outsiders

LIBRARIES: Final = {"msgspec", "typing_extensions", "uvloop"}
"""Others' code. YAML waits for a file of accounts, protobuf and hpack for a port for gRPC clients,
prometheus_client for a port for figures, compression for a body that is compressed."""

SELDOM: Final = {"csv", "email", "html", "importlib.metadata", "tempfile", "zipfile"}
"""Of the standard library, what takes 10 ms and more and a server that starts does not need."""

ROOMS: Final = {
    "acl", "base", "broker", "cli", "codec", "delivery", "errors", "filter", "lane", "net", "node",
    "registry", "store", "txn",
}  # fmt: skip

_STARTED: Final = """
import os, signal
from escrowmq.cli.main import main
from escrowmq.node import serve
serve.print_ready_line = lambda **doors: os.kill(os.getpid(), signal.SIGTERM)
main(["serve", "--nameserver-port", "0", "--broker-port", "0", "--data", {folder!r}])
"""


def test_an_http_port_loads_what_serves_it_when_somebody_calls(tmp_path: Path) -> None:
    with_port = _STARTED.replace('"--data"', '"--http-port", "0", "--data"')
    assert with_port != _STARTED
    found = loaded(with_port.format(folder=str(tmp_path)))
    assert outsiders(found) & {"starlette", "uvicorn", "jinja2", "prometheus_client"} == set()
    assert not found & SELDOM
    # Who may log in is settled at the start, so that the log can say where the password is.
    console = {name for name in found if name.startswith("escrowmq.console")}
    assert console == {
        "escrowmq.console", "escrowmq.console.local_users", "escrowmq.console.options",
    }  # fmt: skip


def test_a_start_loads_what_a_server_needs_and_nothing_else(tmp_path: Path) -> None:
    found = loaded(_STARTED.format(folder=str(tmp_path)))
    assert {name.split(".")[1] for name in found if name.startswith("escrowmq.")} == ROOMS
    others = {name for name in outsiders(found) if "cython" not in name}  # a part of uvloop
    assert others <= LIBRARIES
    assert not found & SELDOM
    # No verb but those that are files of a server's own: see cli/main.
    verbs = {name.split(".")[2] for name in found if name.startswith("escrowmq.cli.")}
    assert verbs == {"main", "option_order", "printing"}
    # Ten further modules cost 5 ms, compiled; ask whether they are needed at once.
    assert len([name for name in found if name.startswith("escrowmq")]) <= 394
