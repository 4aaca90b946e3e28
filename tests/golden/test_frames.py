from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.command import Command
from escrowmq.base.effects import Send
from escrowmq.base.message import Message
from escrowmq.base.nameserver_settings import NameServerSettings
from escrowmq.broker.sends.forbidden_to_senders import clean_message
from escrowmq.codec import fastjson
from escrowmq.codec.batch_body import decode_batch, encode_batch
from escrowmq.codec.binary_header import LANGUAGES
from escrowmq.codec.client_bodies import HeartbeatBody, LockBody, decode_body
from escrowmq.codec.command import encode_command
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.headers import EndTransactionHeader, PullHeader, SendHeaderV2, read_header
from escrowmq.codec.properties import parse_properties
from escrowmq.codec.record import decode_records
from escrowmq.registry.core import RegistryCore
from escrowmq.testing.disk import SimDisk
from tests.harness.exchange import Caller, Exchange

from .captured import FRAME_FILES, all_frames, frames, heartbeats, load

FRAMES = all_frames()
JSON_LANGUAGE = b'"language":"PYTHON"'


def decode(frame: bytes) -> Command:
    reader = FrameReader()
    (command,) = reader.read_commands(frame)
    assert reader.broken is None
    return command


def header_of(frame: bytes) -> bytes:
    return frame[8 : 8 + int.from_bytes(frame[5:8], "big")]


@pytest.mark.parametrize(("name", "frame"), FRAMES, ids=[name for name, _ in FRAMES])
def test_frame_is_read_whole_and_in_any_pieces(name: str, frame: bytes) -> None:
    command = decode(frame)
    assert command.is_binary == (frame[4] == 1)
    assert command.body == frame[8 + int.from_bytes(frame[5:8], "big") :]
    if not command.is_binary:
        header: dict[str, Any] = json.loads(header_of(frame))
        assert (command.code, command.opaque, command.flag, command.version) == (
            header["code"],
            header["opaque"],
            header["flag"],
            header["version"],
        )
        assert command.ext == header.get("extFields")
        assert command.remark == header.get("remark")
    for step in (1, 7):
        reader = FrameReader()
        pieces = [reader.read_commands(frame[at : at + step]) for at in range(0, len(frame), step)]
        assert [c for piece in pieces for c in piece] == [command]


@pytest.mark.parametrize(("name", "frame"), FRAMES, ids=[name for name, _ in FRAMES])
def test_frame_that_is_read_and_written_differs_in_its_language_alone(
    name: str, frame: bytes
) -> None:
    command = decode(frame)
    again = encode_command(command)
    if command.is_binary:
        language = LANGUAGES.index("PYTHON")
        if name.endswith("create_topic request"):  # an empty field, which is read as none
            assert msgspec.structs.replace(decode(again), language=command.language) == command
            return
        assert again == frame[:10] + bytes([language]) + frame[11:]
        return
    ours: dict[str, Any] = json.loads(header_of(again))
    theirs: dict[str, Any] = json.loads(header_of(frame))
    assert {**ours, "language": theirs["language"]} == {"extFields": None, **theirs}
    assert list(ours) == sorted(ours)
    assert again.endswith(command.body)


@pytest.mark.parametrize("name", FRAME_FILES)
def test_fields_of_requests_are_read_as_typed_values(name: str) -> None:
    found = dict(frames(name))
    half = read_header(SendHeaderV2, decode(found["send_half request"]).ext)
    assert (half.default_topic, half.default_topic_queue_nums) == ("TBW102", 4)
    assert "TRAN_MSG\x01true" in half.properties
    end = read_header(EndTransactionHeader, decode(found["end_transaction_commit request"]).ext)
    assert (end.commit_or_rollback, end.from_transaction_check) == (8, False)
    pull = read_header(PullHeader, decode(found["pull request"]).ext)
    assert pull.max_msg_nums > 0


@pytest.mark.parametrize("name", FRAME_FILES)
def test_messages_of_a_pull_are_read(name: str) -> None:
    reply = decode(dict(frames(name))["pull reply"])
    messages = decode_records(reply.body)
    assert messages
    assert all(message.topic.startswith(("golden-", "%RETRY%golden-")) for message in messages)


@pytest.mark.parametrize(
    "name", [n for n in FRAME_FILES if "send_batch request" in dict(frames(n))]
)
def test_batch_is_taken_apart_and_put_together_again(name: str) -> None:
    body = decode(dict(frames(name))["send_batch request"]).body
    entries = decode_batch(body)
    assert len(entries) > 1
    assert encode_batch(entries) == body


@pytest.mark.parametrize(("name", "frame"), heartbeats(), ids=[n for n, _ in heartbeats()])
def test_heartbeat_of_every_client_is_understood(name: str, frame: bytes) -> None:
    body = decode_body(HeartbeatBody, decode(frame).body)
    assert body.client_id
    assert body.producers or body.consumers
    exchange = Exchange()
    caller = exchange.connect()
    assert replay(caller, frame).code == 0
    for consumer in body.consumers or []:
        group = exchange.core.broker.clients.consumers[consumer.group_name]
        assert group.message_model == "CLUSTERING"
        assert set(group.subscriptions) == {s.topic for s in consumer.subscription_data_set or []}
    for producer in body.producers or []:
        assert caller.id in exchange.core.broker.clients.producers[producer.group_name]


def test_lock_request_names_its_queues() -> None:
    found = dict(frames("frames-java-5.3.3.json"))
    body = decode_body(LockBody, decode(found["lock_batch request"]).body)
    assert body.mq_set
    reply = fastjson.decode_fastjson(decode(found["lock_batch reply"]).body)
    assert len(reply["lockOKMQSet"]) == len(body.mq_set)


# -- exchanges -----------------------------------------------------------------------------------


def replay(caller: Caller, frame: bytes, flag: int = 0) -> Command:
    """Our broker's answer to a captured request."""
    request = decode(frame)
    caller.is_binary = request.is_binary
    caller.version = request.version
    if flag:
        caller.tell(request.code, request.ext, request.body)
        return Command()
    return caller.ask(request.code, request.ext, request.body)


SAME_FIELDS = (
    "heartbeat_producer", "send", "send_batch", "send_compressed_zlib", "send_delay_level",
    "send_half", "unregister_producer", "heartbeat_consumer", "consumer_list", "lock_batch",
    "unlock_batch", "check_client_config", "create_topic", "create_group", "topic_stats",
    "max_offset", "min_offset", "search_offset", "runtime_info", "update_consumer_offset",
    "unregister_consumer", "delete_topic",
)  # fmt: skip


@pytest.mark.parametrize("file", FRAME_FILES)
def test_our_broker_answers_with_the_code_and_the_fields_of_the_peer(file: str) -> None:
    disk = SimDisk()
    for name, text in load("tables-5.3.3.json")["files"].items():
        disk.small[f"config/{name}"] = text.encode()
    disk.small["queues.json"] = b"{}"  # a store whose log was empty
    exchange = Exchange(BrokerSettings(has_property_filter=True), disk=disk)
    found = dict(frames(file))
    caller = exchange.connect()
    for name in SAME_FIELDS:
        if f"{name} request" not in found:
            continue
        if f"{name} reply" not in found:  # it is one-way
            replay(caller, found[f"{name} request"], flag=2)
            continue
        expected = decode(found[f"{name} reply"])
        reply = replay(caller, found[f"{name} request"])
        assert (name, reply.code, reply.remark) == (name, expected.code, reply.remark)
        assert (name, set(reply.ext or {})) == (name, set(expected.ext or {}))
        assert (name, bool(reply.body)) == (name, bool(expected.body))


def only_reply(core: RegistryCore) -> Command:
    (send,) = core.take_effects()
    assert isinstance(send, Send)
    return decode(b"".join(send.chunks))


def test_name_server_takes_the_registration_of_a_java_broker_and_serves_its_topics() -> None:
    core = RegistryCore(NameServerSettings(), SimDisk(), started_ms=0)
    core.connected(1, "127.0.0.1", 1, 0)
    found = dict(frames("registration-5.3.3.json"))
    for name in ("register_broker", "register_broker_compressed", "query_data_version"):
        core.receive(1, found[f"{name} request"], 1)
        reply = only_reply(core)
        # The Java broker calls its deflated body plain, which no name server can read.
        assert (name, reply.code) == (name, decode(found[f"{name} reply"]).code)
    body = json.loads(decode(found["register_broker request"]).body)
    topics = body["topicConfigSerializeWrapper"]["topicConfigTable"]
    assert topics
    for topic in topics:
        request = Command(code=105, opaque=1, version=479, ext={"topic": topic})
        core.receive(1, encode_command(request), 2)
        route = only_reply(core)
        assert (topic, route.code) == (topic, 0)
        queues = json.loads(route.body)["queueDatas"][0]
        assert queues["readQueueNums"] == topics[topic]["readQueueNums"]
        assert queues["perm"] == topics[topic]["perm"]


def test_what_clients_send_passes_the_door_as_it_is() -> None:
    passed = 0
    for name, frame in FRAMES:
        ext = decode(frame).ext or {}
        if not name.endswith("request") or decode(frame).code != 310:
            continue
        properties = parse_properties(ext["i"])
        half = properties.get("TRAN_MSG") == "true"
        message = Message(
            topic=ext["b"], body=b"x", properties=dict(properties), sys_flag=int(ext["f"])
        )
        assert clean_message(message, is_half=half) == ""
        assert (message.properties, message.sys_flag) == (properties, int(ext["f"]))
        passed += 1
    assert passed > 10
