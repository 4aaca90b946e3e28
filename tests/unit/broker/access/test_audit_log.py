from __future__ import annotations

import json
import logging
import re

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.command import Command
from escrowmq.broker.access.audit_log import DenialLog, write_line
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.peer import Peer
from escrowmq.broker.requests.request_table import request_rows
from escrowmq.codec.key_value_line import quote_if_needed
from escrowmq.testing.disk import SimDisk
from tests.harness.exchange import Exchange

SECRET = "a-long-secret"
LINE = re.compile(r'(?:[a-zA-Z]+=(?:[A-Za-z0-9._:/%*|-]+|"(?:[^"\\]|\\.)*"))(?: |$)')


@pytest.fixture(autouse=True)
def _listen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "escrowmq.audit")


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, str]]:
    """The lines so far, taken to pieces by the documented form."""
    found = []
    for record in caplog.records:
        if record.name != "escrowmq.audit":
            continue
        text = record.getMessage()
        assert LINE.sub("", text) == "", text
        pairs = re.findall(r'([a-zA-Z]+)=("(?:[^"\\]|\\.)*"|\S+)', text)
        found.append({k: json.loads(v) if v[0] == '"' else v for k, v in pairs})
    caplog.clear()
    return found


def test_no_value_writes_a_line_of_its_own() -> None:
    assert quote_if_needed("orders.paid-1") == "orders.paid-1"
    assert quote_if_needed("") == '""'
    assert quote_if_needed("a b") == '"a b"'
    assert quote_if_needed('x"\nevent=operation') == r'"x\"\nevent=operation"'
    assert quote_if_needed("\u2028") == '"\\u2028"'
    assert len(quote_if_needed("x" * 10_000)) < 600


def test_operations_are_written_with_who_what_and_how_it_went(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exchange = Exchange()
    operator = exchange.connect(host="10.0.0.9")
    exchange.create_topic("T")
    operator.ask(215, {"topic": "T"})
    operator.ask(25, body=b"transactionTimeOut=5\n")
    operator.ask(25, body=b"mySecret=not for logs\n")
    operator.ask(222, {"topic": "nowhere", "group": "g\nevent=x", "timestamp": "1"})
    found = lines(caplog)
    (change,) = [one for one in found if one["event"] == "setting"]
    assert (change["name"], change["before"], change["after"]) == (
        "transactionTimeOut",
        "6000",
        "5",
    )
    assert change["peer"].startswith("10.0.0.9:")
    found.remove(change)
    assert [one["request"] for one in found] == [
        "UPDATE_AND_CREATE_TOPIC", "DELETE_TOPIC_IN_BROKER", "UPDATE_BROKER_CONFIG",
        "UPDATE_BROKER_CONFIG", "INVOKE_BROKER_TO_RESET_OFFSET",
    ]  # fmt: skip
    assert {one["event"] for one in found} == {"operation"}
    assert (found[1]["topic"], found[1]["result"], found[1]["code"]) == ("T", "0", "215")
    assert found[2]["settings"] == "transactionTimeOut"
    assert "not for logs" not in str(found[3])
    assert found[3]["result"] == "29"
    assert found[4]["group"] == "g\nevent=x"
    assert "does not exist" in found[4]["reason"]


def test_looks_are_not_operations(caplog: pytest.LogCaptureFixture) -> None:
    client = Exchange().connect()
    for code in (26, 28, 30, 202):
        client.ask(code, {"topic": "T", "queueId": "0"})
    assert lines(caplog) == []
    assert 26 not in {row.code for row in request_rows() if row.is_audited}


def test_what_failed_is_written_too(caplog: pytest.LogCaptureFixture) -> None:
    Exchange().connect().ask(200, body=b"{")
    (line,) = lines(caplog)
    assert line["result"] == "1"


def guarded() -> Exchange:
    disk = SimDisk()
    disk.small["plain_acl.yml"] = (
        f"accounts: [{{accessKey: operator, secretKey: {SECRET}, admin: true}}]".encode()
    )
    return Exchange(BrokerSettings(acl_enabled=True), disk=disk)


def test_no_secret_is_written(caplog: pytest.LogCaptureFixture) -> None:
    exchange = guarded()
    operator = exchange.connect()
    operator.credentials = ("operator", SECRET)
    operator.ask(50, {"accessKey": "new-one", "secretKey": "the-secret-of-it"})
    local = exchange.connect(host="127.0.0.1")
    local.credentials = operator.credentials
    local.ask(3001, {"username": "u"}, b'{"password":"the-secret-of-it"}')
    local.ask(3002, {"username": "u"}, b'{"password":"the-secret-of-it"}')
    found = lines(caplog)
    assert [one["result"] for one in found] == ["0", "0", "0"]
    assert found[0]["account"] == "operator"
    assert "secret-of-it" not in caplog.text + str(found)
    assert SECRET not in str(found)


def test_denials_are_written_some_times_and_then_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exchange = guarded()
    stranger = exchange.connect(host="10.0.0.8")
    stranger.credentials = ("stranger", SECRET)
    for _ in range(35):
        stranger.send("T")
    other = exchange.connect(host="10.0.0.7")
    other.send("T")
    found = lines(caplog)
    assert len(found) == 11
    assert {one["event"] for one in found} == {"denial"}
    assert found[0] == {
        "event": "denial",
        "peer": stranger_address(exchange),
        "account": "stranger",
        "request": "SEND_MESSAGE_V2",
        "code": "310",
        "reason": "No acl config for stranger",
    }
    exchange.advance(61_000)
    assert lines(caplog) == [
        {"event": "denials", "peer": "10.0.0.8", "account": "stranger", "count": "25"}
    ]
    stranger.send("T")
    assert len(lines(caplog)) == 1
    assert exchange.core.assembly.access.denials.count == 37


ROW = next(request_rows())  # any


def stranger_address(exchange: Exchange) -> str:
    return next(
        peer.address
        for peer in exchange.core.broker.peers.by_id.values()
        if peer.host == "10.0.0.8"
    )


def test_denials_of_many_names_take_bounded_room(caplog: pytest.LogCaptureFixture) -> None:
    denials = DenialLog()
    peer = Peer(1, "10.0.0.8", 5)
    for number in range(10_050):
        request = Command(code=310, opaque=1, ext={"AccessKey": f"name-{number}"})
        denials.log_denial(IncomingRequest(peer, ROW, request, None, 0), "no", 0)
    assert len(lines(caplog)) == 600
    assert denials.wake_at_ms() == 60_000
    denials.wake(60_000)
    # The last 50 had to share one name, of which ten lines were due.
    assert [(line["peer"], line["count"]) for line in lines(caplog)] == [
        ("others", "40"), ("everybody", "9410"),
    ]  # fmt: skip
    assert denials.wake_at_ms() is None


def test_a_request_without_fields_has_no_account(caplog: pytest.LogCaptureFixture) -> None:
    write_line(
        "operation",
        IncomingRequest(Peer(1, "::1", 5), ROW, Command(code=99_999, opaque=1), None, 0),
    )
    assert lines(caplog) == [
        {
            "event": "operation",
            "peer": "::1:5",
            "account": "",
            "request": "99999",
            "code": "99999",
        }
    ]
