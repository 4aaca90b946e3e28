from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec import routes
from escrowmq.codec.routes import (
    BrokerData,
    ClusterInfo,
    QueueData,
    RegisteredTopic,
    TableVersion,
    TopicRoute,
    decode_cluster_info,
    decode_registration,
    decode_route,
    encode_cluster_info,
    encode_registration,
    encode_route,
)
from escrowmq.errors import RemoteProtocolError

NAMES = st.text(alphabet='abcXYZ09-_é/"\\', min_size=1, max_size=8)
BROKERS = st.builds(
    BrokerData,
    st.dictionaries(st.integers(0, 3), NAMES, min_size=1),
    NAMES,
    NAMES,
    st.booleans(),
    st.none() | NAMES,
)
ROUTES = st.builds(
    TopicRoute,
    st.lists(BROKERS, max_size=3),
    st.dictionaries(NAMES, st.lists(NAMES)),
    st.none() | NAMES,
    st.lists(st.builds(QueueData, NAMES, *[st.integers(0, 16)] * 4), max_size=3),
    st.none() | st.dictionaries(NAMES, st.just({"bname": "b", "currIdMap": {"0": 1}})),
)


@given(ROUTES, st.booleans())
def test_a_route_is_read_back_from_both_forms(route: TopicRoute, is_standard: bool) -> None:
    assert decode_route(encode_route(route, is_standard=is_standard)) == route


@given(st.dictionaries(NAMES, BROKERS), st.dictionaries(NAMES, st.lists(NAMES)))
def test_cluster_info_is_read_back(
    brokers: dict[str, BrokerData], clusters: dict[str, list[str]]
) -> None:
    info = ClusterInfo(brokers, clusters)
    assert decode_cluster_info(encode_cluster_info(info)) == info


@given(
    st.lists(
        st.builds(
            RegisteredTopic,
            topic_name=st.from_regex(r"[A-Za-z0-9_]{1,8}", fullmatch=True),
            perm=st.integers(0, 7),
            read_queue_nums=st.integers(0, 99),
            write_queue_nums=st.integers(0, 99),
            attributes=st.just({"+message.type": "FIFO"}),
        ),
        unique_by=lambda topic: topic.topic_name,
    ),
    st.booleans(),
)
def test_a_registration_is_read_back_from_both_forms(
    topics: list[RegisteredTopic], is_compressed: bool
) -> None:
    version = TableVersion(1, 2, 3)
    data = encode_registration(topics, version, filter_servers=["f"], is_compressed=is_compressed)
    read = decode_registration(data, is_compressed=is_compressed, sender_version=479)
    assert read.version == version
    assert list(read.topics.values()) == topics
    assert read.filter_servers == ["f"]
    assert read.mappings == {}


def test_no_body_registers_nothing() -> None:
    read = decode_registration(b"", is_compressed=True, sender_version=479)
    assert read.version == TableVersion(0, 0, 0)
    assert read.topics == {}
    assert read.filter_servers is None


def test_an_inflated_registration_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "FRAME_SIZE_MAX", 1000)
    with pytest.raises(RemoteProtocolError, match="more than 1000 bytes"):
        decode_registration(zlib.compress(bytes(2000)), is_compressed=True, sender_version=479)


def sized(*items: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(item)) + item for item in items)


@pytest.mark.parametrize(
    ("stream", "fault"),
    [
        (b"", "in a size"),
        (b"\xff\xff\xff\xff", "size of -1"),
        (b"\0\0\0\x05ab", "ends at 6"),
        (sized(b"{}") + struct.pack(">i", 2**31 - 1), "topics registered"),
        (sized(b"{}") + struct.pack(">i", 1) + sized(b"a b"), "has 2 words"),
        (sized(b"{}") + struct.pack(">i", 1) + sized(b"a x 1 6 SINGLE_TAG"), "topic line"),
        (sized(b"{}") + struct.pack(">i", 1) + sized(b"\xff 1 1 6 SINGLE_TAG"), "topic line"),
        (sized(b"{}") + struct.pack(">i", 1) + sized(b"a 1 2147483648 6 SINGLE_TAG"), "beyond"),
    ],
)
def test_a_malformed_stream_is_refused(stream: bytes, fault: str) -> None:
    with pytest.raises(RemoteProtocolError, match=fault):
        decode_registration(zlib.compress(stream), is_compressed=True, sender_version=479)


def test_what_the_peer_only_logs_is_passed_over() -> None:
    line = b'T 1 1 6 SINGLE_TAG {"a":"b c"}'
    stream = sized(b"{}") + struct.pack(">i", 1) + sized(line, b"{{{")
    read = decode_registration(zlib.compress(stream), is_compressed=True, sender_version=412)
    assert read.topics["T"].attributes is None
    assert read.filter_servers == []


def test_mappings_of_static_topics_are_read() -> None:
    mapping = b'{"bname":"b","currIdMap":{0:0},"topic":"S"}'
    stream = sized(b"{}") + struct.pack(">i", 0) + sized(b"[]") + struct.pack(">i", 1)
    data = zlib.compress(stream + sized(mapping))
    read = decode_registration(data, is_compressed=True, sender_version=413)
    assert read.mappings == {"S": {"bname": "b", "currIdMap": {"0": 0}, "topic": "S"}}


def test_odd_keys_of_a_mapping_stay_json() -> None:
    mapping = {"currIdMap": {"0": 1, 'a"b': 2}, "bname": "b"}
    route = TopicRoute([], {}, None, [], {"b": mapping})
    assert decode_route(encode_route(route, is_standard=False)) == route


@pytest.mark.parametrize("version", [30, 479])
def test_too_many_topics_are_refused(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "REGISTRATION_TOPICS_MAX", 1)
    table = b'{"topicConfigTable":{"a":{},"b":{}}}'
    data = table if version == 30 else b'{"topicConfigSerializeWrapper":' + table + b"}"
    with pytest.raises(RemoteProtocolError, match="2 topics"):
        decode_registration(data, is_compressed=False, sender_version=version)
