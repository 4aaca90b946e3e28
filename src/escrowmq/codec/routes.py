"""Bodies that name servers exchange with brokers and clients: routes, cluster info, registration.

Members are in RocketMQ's (alphabetical) order. `brokerAddrs` has integer keys, which RocketMQ
writes without quotes, except in routes for clients that ask for standard JSON.

A compressed registration is one zlib stream; sizes and counts are 4 bytes, big-endian:
  size, then the version as JSON
  count of topics, for each: size, then `name read write perm FILTER attributes`
  size, then the filter servers as JSON
  from V5_0_0 on: count of mappings, for each: size, then the mapping as JSON
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from escrowmq.base.codes import Version
from escrowmq.base.command import Int
from escrowmq.base.fixed_limits import FRAME_SIZE_MAX, INT_MAX
from escrowmq.codec import fastjson
from escrowmq.codec.client_bodies import decode_body
from escrowmq.errors import RemoteProtocolError

REGISTRATION_TOPICS_MAX: Final = 200_000
"""The most topics in one registration."""

PARTIAL: Final = "escrowPartial"
"""The field of a registration that contains only some of the broker's topics."""

_SIZE: Final = struct.Struct(">i")
_ZLIB_LEVEL: Final = 9
_TOPIC_WORDS_MIN: Final = 5
_QUEUES_DEFAULT: Final = 16
_PERM_DEFAULT: Final = 6
_ID_MAP: Final = "currIdMap"
_INT_DIGITS: Final = 10
_ESCAPED: Final = re.compile(r"[^ -~]|/")


class TableVersion(msgspec.Struct, rename="camel", frozen=True):
    """The version of a broker's topic table (RocketMQ's DataVersion)."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0


class QueueData(msgspec.Struct, rename="camel"):
    """The queues of one topic on one broker."""

    broker_name: str
    perm: Int = 0
    read_queue_nums: Int = 0
    topic_sys_flag: Int = 0
    write_queue_nums: Int = 0


class BrokerData(msgspec.Struct, rename="camel"):
    """The addresses of the brokers that share a name, by broker id."""

    broker_addrs: dict[int, str]
    broker_name: str
    cluster: str | None = None
    enable_acting_master: bool = False
    zone_name: str | None = None


class TopicRoute(msgspec.Struct, rename="camel"):
    """The brokers and queues of a topic (RocketMQ's TopicRouteData)."""

    broker_datas: list[BrokerData] | None = None
    filter_server_table: dict[str, list[str] | None] | None = None
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] | None = None
    topic_queue_mapping_by_broker: dict[str, dict[str, Any]] | None = None


class ClusterInfo(msgspec.Struct, rename="camel"):
    """All brokers and clusters that a name server knows."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class DepartedBroker(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A broker that was registered until recently. This type and its request are our own."""

    name: str
    cluster: str
    id: int
    address: str
    since_ms: int
    has_said_so: bool = False
    """Whether the broker unregistered itself, as it does when it is stopped."""


class RegisteredTopic(msgspec.Struct, rename="camel", kw_only=True):
    """A topic as a broker registers it (RocketMQ's TopicConfig)."""

    attributes: dict[str, str] | None = None
    order: bool = False
    perm: Int = _PERM_DEFAULT
    read_queue_nums: Int = _QUEUES_DEFAULT
    topic_filter_type: str | None = "SINGLE_TAG"
    topic_name: str = ""
    topic_sys_flag: Int = 0
    write_queue_nums: Int = _QUEUES_DEFAULT


class TopicFields(Protocol):
    """The fields that a topic in a compressed registration must have."""

    attributes: Any
    perm: int
    read_queue_nums: int
    topic_filter_type: Any
    topic_name: str
    write_queue_nums: int


class RegistrationBody(msgspec.Struct, kw_only=True):
    """The content of REGISTER_BROKER's body, in either form."""

    version: TableVersion = TableVersion()
    topics: dict[str, RegisteredTopic] = {}
    mappings: dict[str, dict[str, Any]] = {}
    filter_servers: list[str] | None = None

    def topic_names(self) -> set[str]:
        """The names of the registered topics."""
        return {topic.topic_name or key for key, topic in self.topics.items()}


class _TopicTable(msgspec.Struct, rename="camel"):
    data_version: TableVersion | None = None
    topic_config_table: dict[str, RegisteredTopic] | None = None
    topic_queue_mapping_info_map: dict[str, dict[str, Any]] | None = None


class _RegisterBody(msgspec.Struct, rename="camel"):
    filter_server_list: list[str] | None = None
    topic_config_serialize_wrapper: _TopicTable | None = None


# -- routes ------------------------------------------------------------------------------------


def encode_route(route: TopicRoute, *, is_standard: bool) -> bytes:
    """Encode a route. `is_standard` quotes broker ids and escapes non-ASCII characters."""
    data = fastjson.encode(
        _without_none(
            {
                "brokerDatas": [_encode_broker(b, is_standard) for b in route.broker_datas or ()],
                "filterServerTable": _without_none(route.filter_server_table or {}),
                "orderTopicConf": route.order_topic_conf,
                "queueDatas": route.queue_datas or [],
                "topicQueueMappingByBroker": _encode_mappings(route, is_standard),
            }
        )
    )
    if not is_standard or (data.isascii() and b"/" not in data):
        return data
    # fastjson's BrowserCompatible: UTF-16 escapes, and a backslash in front of each slash.
    return _ESCAPED.sub(_escape_non_ascii, data.decode()).encode()


def _encode_mappings(route: TopicRoute, is_standard: bool) -> dict[str, dict[str, Any]] | None:
    by_broker = route.topic_queue_mapping_by_broker
    if is_standard or by_broker is None:
        return by_broker
    return {
        name: {**mapping, _ID_MAP: _unquote_keys(mapping.get(_ID_MAP))}
        for name, mapping in by_broker.items()
    }


def _unquote_keys(found: object) -> msgspec.Raw:
    items = found.items() if isinstance(found, dict) else ()
    return msgspec.Raw(
        fastjson.encode_fastjson_map(
            (int(key) if key.isdecimal() and len(key) < _INT_DIGITS else key, value)
            for key, value in items
        )
    )


def _escape_non_ascii(found: re.Match[str]) -> str:
    if found[0] == "/":
        return "\\/"
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[i : i + 2].hex().upper()}" for i in range(0, len(units), 2))


def _without_none(members: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in members.items() if value is not None}


def _encode_broker(broker: BrokerData, is_standard: bool) -> dict[str, object]:
    return _without_none(
        {
            "brokerAddrs": _encode_addresses(broker.broker_addrs, is_standard),
            "brokerName": broker.broker_name,
            "cluster": broker.cluster,
            "enableActingMaster": broker.enable_acting_master,
            "zoneName": broker.zone_name,
        }
    )


def _encode_addresses(addresses: dict[int, str], is_standard: bool) -> object:
    items = sorted(addresses.items())
    return dict(items) if is_standard else msgspec.Raw(fastjson.encode_fastjson_map(items))


def decode_route(data: bytes) -> TopicRoute:
    """Decode a route in either form."""
    return decode_body(TopicRoute, data)


# -- clusters and lists --------------------------------------------------------------------------


def encode_cluster_info(info: ClusterInfo) -> bytes:
    """Encode all brokers and clusters. Broker ids are never quoted."""
    brokers = {
        name: _encode_broker(broker, False) for name, broker in info.broker_addr_table.items()
    }
    return fastjson.encode(
        {"brokerAddrTable": brokers, "clusterAddrTable": info.cluster_addr_table}
    )


def decode_cluster_info(data: bytes) -> ClusterInfo:
    """Decode all brokers and clusters."""
    return decode_body(ClusterInfo, data)


def encode_departed_brokers(brokers: list[DepartedBroker]) -> bytes:
    """Encode the list of brokers that left recently."""
    return msgspec.json.encode({"brokers": brokers})


class _DepartedBrokers(msgspec.Struct):
    brokers: list[DepartedBroker] = []


def decode_departed_brokers(data: bytes) -> list[DepartedBroker]:
    """Decode the list of brokers that left recently."""
    return decode_body(_DepartedBrokers, data).brokers


def encode_member_group(cluster: str | None, broker_name: str, addresses: dict[int, str]) -> bytes:
    """Encode the addresses of the brokers that share a name."""
    group = {
        "brokerAddrs": _encode_addresses(addresses, False),
        "brokerName": broker_name,
        "cluster": cluster,
    }
    return fastjson.encode({"brokerMemberGroup": _without_none(group)})


def encode_topic_list(topics: Iterable[str], *, broker_address: str | None = None) -> bytes:
    """Encode a list of topic names."""
    return fastjson.encode(_without_none({"brokerAddr": broker_address, "topicList": list(topics)}))


def encode_kv_table(table: Mapping[str, str]) -> bytes:
    """Encode the items of one namespace of the key-value configuration."""
    return fastjson.encode({"table": table})


def decode_version(data: bytes) -> TableVersion:
    """Decode a table version."""
    return decode_body(TableVersion, data)


# -- registration --------------------------------------------------------------------------------


def encode_registration(
    topics: Iterable[TopicFields],
    version: TableVersion,
    *,
    filter_servers: Iterable[str] = (),
    is_compressed: bool = False,
) -> bytes:
    """Encode the body with which our brokers register."""
    if is_compressed:
        return zlib.compress(_registration_stream(topics, version, filter_servers), _ZLIB_LEVEL)
    table = {topic.topic_name: topic for topic in topics}
    return fastjson.encode(
        {
            "filterServerList": list(filter_servers),
            "topicConfigSerializeWrapper": {
                "dataVersion": version,
                "mappingDataVersion": TableVersion(),
                "topicConfigTable": table,
                "topicQueueMappingDetailMap": {},
                "topicQueueMappingInfoMap": {},
            },
        }
    )


def _registration_stream(
    topics: Iterable[TopicFields], version: TableVersion, filter_servers: Iterable[str]
) -> bytes:
    lines = [_topic_line(topic) for topic in topics]
    parts = [_with_size(fastjson.encode(version)), _SIZE.pack(len(lines)), *map(_with_size, lines)]
    parts += [_with_size(fastjson.encode(list(filter_servers))), _SIZE.pack(0)]
    return b"".join(parts)


def _topic_line(topic: TopicFields) -> bytes:
    attributes = fastjson.encode(topic.attributes or {}).decode()
    return (
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} "
        f"{topic.topic_filter_type} {attributes}"
    ).encode()


def _with_size(data: bytes) -> bytes:
    return _SIZE.pack(len(data)) + data


def decode_registration(
    data: bytes, *, is_compressed: bool, sender_version: int
) -> RegistrationBody:
    """Decode the body of REGISTER_BROKER, in the form of the sender's release."""
    if not data:
        return RegistrationBody()
    if sender_version < Version.V3_0_11:
        return _to_registration(decode_body(_TopicTable, data), None)
    if is_compressed:
        return _read_registration(_ItemReader(_decompress(data)), sender_version)
    body = decode_body(_RegisterBody, data)
    return _to_registration(
        body.topic_config_serialize_wrapper or _TopicTable(), body.filter_server_list or []
    )


def _to_registration(table: _TopicTable, filter_servers: list[str] | None) -> RegistrationBody:
    topics = table.topic_config_table or {}
    if len(topics) > REGISTRATION_TOPICS_MAX:
        raise RemoteProtocolError(
            f"{len(topics)} topics registered; {REGISTRATION_TOPICS_MAX} are allowed"
        )
    return RegistrationBody(
        version=table.data_version or TableVersion(),
        topics=topics,
        mappings=table.topic_queue_mapping_info_map or {},
        filter_servers=filter_servers,
    )


def _decompress(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(data, FRAME_SIZE_MAX)  # the limit of an uncompressed body
    except zlib.error as error:
        raise RemoteProtocolError(f"registration cannot be decompressed: {error}") from error
    if inflater.unconsumed_tail:
        raise RemoteProtocolError(
            f"registration decompresses to more than {FRAME_SIZE_MAX} bytes; register in parts"
        )
    return plain


class _ItemReader:
    """Reads consecutive items, each preceded by its size."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read_number(self) -> int:
        end = self._at + _SIZE.size
        if end > len(self._data):
            raise RemoteProtocolError(f"registration ends at byte {len(self._data)}, in a size")
        (number,) = _SIZE.unpack_from(self._data, self._at)
        self._at = end
        if number < 0:
            raise RemoteProtocolError(f"registration has a size of {number} at byte {end - 4}")
        return int(number)

    def read_item(self) -> bytes:
        start = self._at + _SIZE.size
        end = start + self.read_number()
        if end > len(self._data):
            raise RemoteProtocolError(f"registration ends at {len(self._data)}, not {end}")
        self._at = end
        return self._data[start:end]


def _read_registration(stream: _ItemReader, sender_version: int) -> RegistrationBody:
    version = decode_version(stream.read_item())
    topics: dict[str, RegisteredTopic] = {}
    count = stream.read_number()
    if count > REGISTRATION_TOPICS_MAX:
        raise RemoteProtocolError(
            f"{count} topics registered; {REGISTRATION_TOPICS_MAX} are allowed"
        )
    for _ in range(count):
        topic = _read_topic(stream.read_item())
        topics[topic.topic_name] = topic
    try:
        filter_servers = decode_body(list[str], stream.read_item())
    except RemoteProtocolError:
        filter_servers = []  # RocketMQ (RegisterBrokerBody.decode) only logs it
    mappings: dict[str, dict[str, Any]] = {}
    if sender_version >= Version.V5_0_0:
        for _ in range(min(stream.read_number(), REGISTRATION_TOPICS_MAX)):
            mapping = decode_body(dict[str, Any], stream.read_item())
            mappings[str(mapping.get("topic"))] = mapping
    return RegistrationBody(
        version=version, topics=topics, mappings=mappings, filter_servers=filter_servers
    )


def _parse_number(word: str) -> int:
    number = int(word)
    if not -INT_MAX <= number <= INT_MAX:
        raise ValueError(f"{word[:32]} is beyond Java's int")
    return number


def _read_topic(line: bytes) -> RegisteredTopic:
    try:
        words = line.decode().split(" ")
        if len(words) < _TOPIC_WORDS_MIN:
            raise RemoteProtocolError(f"topic line {line[:64]!r} has {len(words)} words, not 5")
        name, read, write, perm, filter_type = words[:_TOPIC_WORDS_MIN]
        topic = RegisteredTopic(
            topic_name=name,
            read_queue_nums=_parse_number(read),
            write_queue_nums=_parse_number(write),
            perm=_parse_number(perm),
            topic_filter_type=filter_type,
        )
    except ValueError as error:
        raise RemoteProtocolError(f"topic line {line[:64]!r}: {error}") from error
    if len(words) > _TOPIC_WORDS_MIN:
        try:
            topic.attributes = decode_body(dict[str, str], words[_TOPIC_WORDS_MIN].encode())
        except RemoteProtocolError:
            topic.attributes = None  # a blank inside: RocketMQ (TopicConfig.decode) ignores it
    return topic
