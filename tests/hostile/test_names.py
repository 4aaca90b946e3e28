"""The name server beside the broker: every request code, in the names of nobody, of accounts and of
a forger, in several shapes, changes nothing that others are told."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.codec.command import encode_command

from .place import OPERATOR, A, C, Line, Place

CODES = sorted(
    {code for name, code in vars(Request).items() if name.isupper() and isinstance(code, int)}
    | {*range(100, 120), *range(200, 230), *range(300, 330), 0, -1, 9_999, 32_767}
)
WHO = [None, C, A]


def shapes(broker: str) -> Iterator[tuple[dict[str, str], bytes]]:
    """About the broker that is there, about one that is not, about nothing, and odd ones."""
    queues = {"brokerName": "broker-a", "readQueueNums": 1, "writeQueueNums": 1, "perm": 0}
    topic = {"topicName": "TA", "readQueueNums": 1, "writeQueueNums": 1, "perm": 0}
    bodies = (
        b"", b"{", b"[]",
        json.dumps(
            {"topicConfigSerializeWrapper": {"topicConfigTable": {"TA": topic}, "dataVersion": {
                "counter": 1 << 40, "timestamp": 1 << 50, "stateVersion": 1 << 40}},
             "filterServerList": []}
        ).encode(),
        json.dumps({"queueDatas": [queues], "brokerDatas": []}).encode(),
    )  # fmt: skip
    for address in (broker, "10.9.9.9:10911"):
        fields = {
            "brokerName": "broker-a", "brokerAddr": address, "clusterName": "DefaultCluster",
            "haServerAddr": "10.9.9.9:1", "brokerId": "0", "topic": "TA",
            "cluster": "DefaultCluster", "namespace": "ORDER_TOPIC_CONFIG", "key": "TA",
            "value": "broker-a:1", "compressed": "false",
        }  # fmt: skip
        for body in bodies:
            yield fields, body
    yield {}, b""
    yield dict.fromkeys(("brokerName", "topic", "namespace", "key", "brokerId"), "-1"), b"\x00"


def told(place: Place) -> list[bytes]:
    """What clients hear."""
    with place.line(OPERATOR, to=place.nameserver) as operator:
        asked = [
            operator.ask(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).body
            for topic in ("TA", "TB")
        ]
        asked.append(operator.ask(Request.GET_BROKER_CLUSTER_INFO).body)
        asked.append(operator.ask(Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body)
        names = {"namespace": "ORDER_TOPIC_CONFIG"}
        asked.append(operator.ask(Request.GET_KVLIST_BY_NAMESPACE, names).body)
        return asked


@pytest.mark.parametrize("who", WHO, ids=str)
def test_nobody_but_operators_and_brokers_changes_what_is_told(
    place: Place, who: str | None
) -> None:
    before = told(place)
    assert b"broker-a" in before[0]
    line = place.line(who, to=place.nameserver)
    for code in CODES:
        for fields, body in shapes(place.broker):
            try:
                line.ask(code, fields, body)
            except ConnectionError:
                line = _again(line)
    line.__exit__(None, None, None)
    assert told(place) == before
    with place.line(A) as a:
        assert a.send("TA").code == 0


def _again(line: Line) -> Line:
    again = Line(line.address, line.who)
    line.__exit__(None, None, None)
    return again


def test_an_operator_may(place: Place) -> None:
    fields = {"namespace": "OWN", "key": "k", "value": "v"}
    with place.line(OPERATOR, to=place.nameserver) as operator:
        assert operator.ask(Request.PUT_KV_CONFIG, fields).code == 0
        assert (operator.ask(Request.GET_KV_CONFIG, fields).ext or {})["value"] == "v"
        assert operator.ask(Request.DELETE_KV_CONFIG, fields).code == 0


def test_a_signature_of_another_secret_is_nobodys(place: Place) -> None:
    before = told(place)
    with place.line(None, to=place.nameserver) as forger:
        for fields, body in shapes(place.broker):
            signed = fields | {"AccessKey": OPERATOR, "Signature": "x"}
            for code in (100, 101, 103, 104, 205, 216, 217, 318):
                forger.ask(code, signed, body)
        forger.write(encode_command(Command(code=0, opaque=1, flag=1)))  # a reply to nobody
        assert forger.ask(105, {"topic": "TA"}).code == 0
    assert told(place) == before
