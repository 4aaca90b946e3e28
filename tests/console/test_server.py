"""Connections that ask for nothing keep nobody out, and what is asked is described."""

from __future__ import annotations

import socket

from escrowmq.console.calls import OPERATIONS
from escrowmq.console.server import CONNECTIONS_MAX
from tests.harness.console import HOST, Browser


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
