from __future__ import annotations

import pytest

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.codec.record import decode_record, decode_records
from tests.harness.exchange import START_MS, Caller, Exchange


@pytest.fixture(name="client")
def make_client() -> Caller:
    return Exchange().connect()


def query(client: Caller, key: str, *, topic: str = "T", count: int = 32, **more: str) -> Command:
    ext = {
        "topic": topic, "key": key, "maxNum": str(count), "beginTimestamp": "0",
        "endTimestamp": str(START_MS + 10**9), **more,
    }  # fmt: skip
    return client.ask(Request.QUERY_MESSAGE, ext)


def bodies(reply: Command) -> set[bytes]:
    return {message.body for message in decode_records(reply.body)}


def test_messages_are_found_by_each_of_their_keys_and_by_their_unique_key(client: Caller) -> None:
    client.send("T", b"a", KEYS="k1 k2", UNIQ_KEY="UA")
    client.send("T", b"b", KEYS="k2", UNIQ_KEY="UB")
    client.send("U", b"c", KEYS="k2", UNIQ_KEY="UC")
    assert bodies(query(client, "k1")) == {b"a"}
    reply = query(client, "k2")
    assert bodies(reply) == {b"a", b"b"}
    assert (reply.code, reply.remark) == (0, None)
    assert set(reply.ext or {}) == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}
    assert bodies(query(client, "UB", _UNIQUE_KEY_QUERY="true")) == {b"b"}
    assert bodies(query(client, "k2", count=1)) == {b"b"}


def test_what_is_not_found_is_answered_with_22(client: Caller) -> None:
    client.send("T", KEYS="k")
    for reply in (query(client, "none"), query(client, "k", topic="U"),
                  query(client, "k", endTimestamp="5")):  # fmt: skip
        assert reply.code == 22
        assert reply.remark == "can not find message, maybe time range not correct"
        assert "indexLastUpdateTimestamp" in (reply.ext or {})


def test_query_without_a_field_is_answered_with_1(client: Caller) -> None:
    assert client.ask(Request.QUERY_MESSAGE, {"topic": "T"}).code == 1


def test_message_is_viewed_by_its_place(client: Caller) -> None:
    client.send("T", b"a")
    client.send("T", b"b")
    offset = client.messages("T")[1].log_offset
    reply = client.ask(Request.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})
    assert reply.code == 0
    assert decode_record(reply.body).body == b"b"


@pytest.mark.parametrize("offset", [1, -1, 50, 10**12])
def test_place_without_a_message_is_answered_with_1(client: Caller, offset: int) -> None:
    client.send("T")
    reply = client.ask(Request.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})
    assert (reply.code, reply.remark) == (1, f"can not find message by the offset, {offset}")


def test_commit_can_be_viewed_and_half_is_found_in_its_topic(client: Caller) -> None:
    half = client.prepare("T", b"paid", KEYS="k")
    assert query(client, "k").code == 22
    client.end(half, 8)
    assert bodies(query(client, "k")) == {b"paid"}
