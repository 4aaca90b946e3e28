"""Clients that come by a front: the same door, the same handlers, answers as values."""

from __future__ import annotations

import base64
import hmac
from typing import Any

import msgspec
import pytest

from escrowmq.base.answer import Answer, Denial, Refusal, SendAnswer
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request, Response
from escrowmq.base.guests import GuestIdentity, RequestByValue
from escrowmq.broker.guests import GuestClients
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.signature import ACCESS_KEY, SIGNATURE
from escrowmq.delivery.topics import TopicConfig
from escrowmq.errors import DiskFull
from escrowmq.testing.disk import SimDisk
from escrowmq.txn import keyring
from tests.harness.exchange import SMALL, Exchange
from tests.unit.broker.test_account_proofs import FILE, SECRET, USERS


class Host:
    """A front's side of one guest."""

    def __init__(self, exchange: Exchange | None = None) -> None:
        self.exchange = exchange or Exchange()
        self.guests = GuestClients(self.exchange.core)
        self.replies: list[Answer | Refusal] = []
        self.heard: list[tuple[int, int, dict[str, str], bytes]] = []
        self.id = self.guests.add_guest(GuestIdentity("10.0.0.7", 5000), self, is_stranger=False)

    def send_request(
        self, code: int, opaque: int, ext: dict[str, str], body: bytes, *, is_one_way: bool
    ) -> None:
        self.heard.append((code, opaque, ext, body))

    def begin(self, code: int, ext: dict[str, str], body: bytes = b"", **more: Any) -> int:
        wish = RequestByValue(code, ext, body, **more)
        number = self.guests.make_request(self.id, wish, self.replies.append, self.exchange.now_ms)
        self.settle()
        return number

    def settle(self) -> None:
        self.exchange.core._finish_input(self.exchange.now_ms)
        self.exchange._perform()

    def ask(
        self, code: int, ext: dict[str, str], body: bytes = b"", **more: Any
    ) -> Answer | Refusal:
        self.begin(code, ext, body, **more)
        return self.replies.pop()

    def send(self, topic: str = "T", **properties: str) -> Answer | Refusal:
        ext = {"b": topic, "e": "0", "f": "0", "g": "1", "a": topic}
        ext["i"] = encode_properties({"UNIQ_KEY": "k1", **properties}).decode()
        if "TRAN_MSG" in properties:
            ext["escrowWantsId"] = "true"
        return self.ask(Request.SEND_MESSAGE_V2, ext, b"hello")

    def pop(self, poll_ms: int = 5_000) -> int:
        ext = {
            "consumerGroup": "CG", "topic": "T", "queueId": "-1", "maxMsgNums": "8",
            "invisibleTime": "60000", "pollTime": str(poll_ms), "bornTime": "0", "initMode": "0",
        }  # fmt: skip
        return self.begin(Request.POP_MESSAGE, ext)


def make_host(settings: BrokerSettings | None = None, disk: SimDisk | None = None) -> Host:
    exchange = Exchange(settings, disk=disk)
    config = TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1)
    exchange.core.broker.topics.put(config, exchange.now_ms)
    return Host(exchange)


def test_an_answer_is_handed_over_as_a_value() -> None:
    host = make_host()
    sent = host.send()
    assert isinstance(sent, SendAnswer)
    assert (sent.code, sent.queue_offset, sent.transaction_id) == (0, 0, "k1")


def test_an_answer_waits_for_the_disk_as_everybodys() -> None:
    store = msgspec.structs.replace(SMALL, is_sync_flush=True)
    exchange = Exchange(store_settings=store)
    exchange.create_topic("T")
    exchange.holds_syncs = True
    host = Host(exchange)
    ext = {"b": "T", "e": "0", "f": "0", "g": "1", "i": ""}
    host.begin(Request.SEND_MESSAGE_V2, ext, b"hello")
    assert host.replies == []
    exchange.sync()
    assert isinstance(host.replies.pop(), SendAnswer)


def test_a_poll_that_was_given_up_takes_no_message() -> None:
    host = make_host()
    host.guests.forget_request(host.id, host.pop())
    host.send()
    assert host.replies == []
    host.pop()
    assert host.replies.pop().code == Response.SUCCESS


def test_a_request_of_a_call_that_has_waited_is_served_at_the_present_time() -> None:
    """The front knows when the call began; messages popped then would be visible too early."""
    host = make_host()
    host.send()
    began_ms = host.exchange.now_ms
    host.exchange.advance(15_000)
    host.exchange.now_ms, now_ms = began_ms, host.exchange.now_ms
    host.pop()
    (reply,) = host.replies
    assert reply.ext is not None
    assert reply.ext["popTime"] == str(now_ms)


def test_what_a_guest_that_has_left_waits_for_goes_to_others() -> None:
    host = make_host()
    host.pop()
    host.guests.remove_guest(host.id, host.exchange.now_ms)
    assert host.replies == [Refusal(Response.SYSTEM_ERROR, "the client has left")]
    other = Host(host.exchange)
    other.send()
    assert len(host.replies) == 1
    other.pop()
    assert other.replies.pop().code == Response.SUCCESS


def test_a_check_names_the_transaction_by_an_id_that_anybody_can_end() -> None:
    host = make_host()
    host.guests.set_reachable(host.id, is_reachable=True)
    beat = b'{"clientID":"c","producerDataSet":[{"groupName":"T"}]}'
    assert host.ask(Request.HEART_BEAT, {}, beat).code == 0
    half = host.send(TRAN_MSG="true", PGROUP="T")
    assert isinstance(half, SendAnswer)
    assert half.ext is not None
    host.exchange.advance(60_000)
    code, _, ext, _ = host.heard[0]
    assert code == Request.CHECK_TRANSACTION_STATE
    other = Host(host.exchange)
    for escrow_id in (ext["escrowId"], half.ext["escrowId"]):
        done = other.ask(Request.END_TRANSACTION, {"escrowId": escrow_id, "commitOrRollback": "8"})
        assert isinstance(done, Answer)
        assert (done.code, done.ext) == (
            0, {"escrowOutcome": "committed", "escrowDurability": "memory"},
        )  # fmt: skip


def accounts(kind: str) -> Host:
    disk = SimDisk()
    disk.small["plain_acl.yml"] = FILE
    disk.small["config/auth.json"] = USERS
    if kind == "trusted":  # by 1.0, which leaves the user of 2.0 to be proved
        disk.small["plain_acl.yml"] = b"globalWhiteRemoteAddresses: [10.0.0.7]\n"
    is_new = kind != "1.0"
    return make_host(
        BrokerSettings(acl_enabled=kind != "2.0", authenticates=is_new, authorizes=is_new), disk
    )


def signed(content: bytes, secret: str = SECRET) -> str:
    return base64.b64encode(hmac.digest(secret.encode(), content, "sha1")).decode()


@pytest.mark.parametrize("kind", ["1.0", "2.0", "trusted"])
def test_a_signature_over_something_else_proves_who_it_is(kind: str) -> None:
    host = accounts(kind)
    ext = {"topic": "T", ACCESS_KEY: "owner-1", SIGNATURE: signed(b"20260101T000000Z")}
    good = host.ask(Request.GET_ROUTEINFO_BY_TOPIC, dict(ext), content=b"20260101T000000Z")
    assert good.code == 0
    for wrong, content in (
        (ext, b"another day"),
        ({**ext, SIGNATURE: signed(b"20260101T000000Z", "another secret")}, b"20260101T000000Z"),
        ({**ext, ACCESS_KEY: "nobody"}, b"20260101T000000Z"),
        ({"topic": "T"}, b"20260101T000000Z"),
        ({**ext, "topic": "others"}, b"20260101T000000Z"),
    ):
        assert isinstance(
            host.ask(Request.GET_ROUTEINFO_BY_TOPIC, dict(wrong), content=content), Denial
        ), wrong


def test_a_route_has_the_queues_of_this_broker() -> None:
    host = make_host()
    found = host.ask(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
    assert isinstance(found, Answer)
    assert b'"brokerName":"broker-a"' in found.body
    assert b'"writeQueueNums":1' in found.body
    for hidden in ("nowhere", "RMQ_SYS_TRANS_HALF_TOPIC"):
        missing = host.ask(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": hidden})
        assert missing.code == Response.TOPIC_NOT_EXIST


def test_a_client_answers_what_an_operator_wants_to_know() -> None:
    host = make_host()
    subscription = b'{"topic":"T","subString":"*"}'
    beat = b'{"clientID":"c","consumerDataSet":[{"groupName":"CG","subscriptionDataSet":[%b]}]}'
    assert host.ask(Request.HEART_BEAT, {}, beat % subscription).code == 0
    operator = host.exchange.connect("operator")
    pending = operator.begin(
        Request.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "CG", "clientId": "c"}
    )
    code, opaque, _, _ = host.heard.pop()
    assert code == Request.GET_CONSUMER_RUNNING_INFO
    host.guests.pass_answer(host.id, opaque, Answer(body=b"all is well"), host.exchange.now_ms)
    host.settle()
    assert pending.now.body == b"all is well"


class Keyless(SimDisk):
    """A disk that keeps no keys for a while."""

    keeps_keys = False

    def replace(self, path: str, data: bytes, *, is_private: bool = False) -> None:
        if path == keyring.PATH and not self.keeps_keys:
            raise DiskFull(f"no room for {path}")
        super().replace(path, data, is_private=is_private)


def test_a_check_that_cannot_be_signed_keeps_no_other_one_back() -> None:
    disk = Keyless()
    host = make_host(disk=disk)
    exchange = host.exchange
    remoting = exchange.connect("c2")
    remoting.heartbeat(producer="PG")
    host.guests.set_reachable(host.id, is_reachable=True)
    beat = b'{"clientID":"c","producerDataSet":[{"groupName":"T"}]}'
    assert host.ask(Request.HEART_BEAT, {}, beat).code == 0
    remoting.prepare("T", group="T")
    remoting.prepare("T", group="PG")
    exchange.advance(15_000)
    assert host.heard == []
    assert len(remoting.take(Request.CHECK_TRANSACTION_STATE)) >= 1
    disk.keeps_keys = True
    exchange.advance(60_000)
    assert all(ext["escrowId"] for _, _, ext, _ in host.heard)
    assert host.heard
