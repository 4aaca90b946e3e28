"""Connections that ask for nothing keep nobody out, and what is asked is described."""

from __future__ import annotations

import asyncio
import socket

import pytest

from escrowmq.console import server
from escrowmq.console.calls import OPERATIONS
from escrowmq.console.options import ConsoleOptions
from escrowmq.console.server import CONNECTIONS_MAX, WaitingConnections
from tests.harness.console import ADMIN, HOST, Browser, console, until


def test_connections_that_ask_nothing_give_way(port: int) -> None:
    halves = [socket.create_connection((HOST, port)) for _ in range(CONNECTIONS_MAX + 10)]
    try:
        for half in halves[:-1]:
            half.settimeout(20)
        assert Browser(port).get("/healthz").status == 200
        assert halves[0].recv(1) == b""
    finally:
        for half in halves:
            half.close()


class Connection:
    """A connection as the server cuts it."""

    def __init__(self) -> None:
        self.is_cut = False

    def abort(self) -> None:
        self.is_cut = True

    def is_closing(self) -> bool:
        return self.is_cut


def test_a_connection_that_does_not_read_its_answers_gives_way() -> None:
    """128 of them, without a login, kept probes, metrics and the console from being reached."""
    waiting = WaitingConnections(count_max=3)
    idle, served, stalled, new = (Connection() for _ in range(4))
    for each in (idle, served, stalled):
        waiting.connection_opened(each)
    for each in (served, stalled):
        waiting.request_received(each)
    waiting.writing_stalled(served)
    waiting.writing_resumed(served)
    waiting.writing_stalled(stalled)
    waiting.connection_opened(new)
    assert idle.is_cut, "it has not read for a moment only"
    waiting.connection_closed(idle)
    waiting.request_received(new)
    newer = Connection()
    waiting.connection_opened(newer)
    assert stalled.is_cut, "nobody else but the newest waits"
    assert [served.is_cut, new.is_cut, newer.is_cut] == [False] * 3


def test_a_connection_that_does_not_read_its_answers_is_cut_in_time() -> None:
    async def go() -> None:
        waiting = WaitingConnections(patience_s=-1.0)
        reading, stalled = Connection(), Connection()
        for each in (reading, stalled):
            waiting.connection_opened(each)
            waiting.request_received(each)
        waiting.writing_stalled(stalled)
        cutting = asyncio.ensure_future(waiting.close_late_repeatedly())
        while not stalled.is_cut:
            await asyncio.sleep(0.01)
        cutting.cancel()
        assert not reading.is_cut

    asyncio.run(go())


def test_the_server_notices_a_client_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PATIENCE_S", 0.5)
    monkeypatch.setattr(server, "_CHECK_S", 0.05)
    request = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    options = ConsoleOptions(name_servers="127.0.0.1:1", login="local", users=(ADMIN,))
    with console(options) as port, socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        lazy.settimeout(20)
        lazy.connect((HOST, port))

        def is_cut() -> bool:
            try:
                lazy.sendall(request)
            except (BrokenPipeError, ConnectionResetError):
                return True
            return False

        lazy.sendall(request * 150)
        until(is_cut)


def test_a_request_that_is_none_is_refused(port: int) -> None:
    with socket.create_connection((HOST, port), timeout=20) as odd:
        odd.sendall(b"\x16\x03\x01\x00\xff hello\r\n\r\n")
        assert odd.recv(100).startswith(b"HTTP/1.1 400")


def test_the_document_describes_every_call_and_no_other(port: int, api: Browser) -> None:
    document = Browser(port).call("GET", "/openapi.json").json
    described = {
        (method.upper(), path.removeprefix("/api/v1"), call["operationId"])
        for path, methods in document["paths"].items()
        for method, call in methods.items()
    }
    assert described == {(one.method, one.path, one.name) for one in OPERATIONS}
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            named = {one["name"] for one in call["parameters"] if one["in"] == "path"}
            assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}
            if method == "post" and any(p["name"] == "dry_run" for p in call["parameters"]):
                assert (
                    next(p for p in call["parameters"] if p["name"] == "dry_run")["in"] == "query"
                )
    assert "Refused" in document["components"]["schemas"]


def test_every_look_answers_as_the_document_says(api: Browser) -> None:
    document = api.call("GET", "/openapi.json").json
    schemas = document["components"]["schemas"]
    for path, methods in document["paths"].items():
        call = methods.get("get")
        if call is None or any(one["required"] for one in call["parameters"]):
            continue
        reply = api.ask("GET", path)
        assert reply.status == 200, (path, reply.text)
        shape = call["responses"]["200"]["content"]["application/json"]["schema"]
        if "$ref" in shape:
            wanted = schemas[shape["$ref"].rpartition("/")[2]]
            assert reply.json.keys() <= wanted["properties"].keys(), path
            assert set(wanted["required"]) <= reply.json.keys(), path
        else:
            assert isinstance(reply.json, list), path


def test_parameters_that_cannot_be_are_told(api: Browser) -> None:
    reply = api.call("GET", "/history?of=put&points=0")
    assert (reply.status, reply.json["code"]) == (400, "bad_request")
    assert "points" in reply.json["message"]
    reply = api.call("GET", "/overview?colour=red")
    assert (reply.status, reply.json["message"]) == (400, "colour: no such parameter")
    assert api.call("GET", "/nowhere").json["code"] == "no_call"
    assert api.call("DELETE", "/overview").status == 405
