"""Header fields of the requests that a name server serves.

Nearly all have defaults, because RocketMQ's handlers treat a missing field as null and continue."""

from __future__ import annotations

import msgspec

from escrowmq.base.command import Int
from escrowmq.codec.headers import Header, Long
from escrowmq.codec.routes import PARTIAL

ZONE_NAME = "__ZONE_NAME"
ZONE_MODE = "__ZONE_MODE"


class KvHeader(Header):
    """The fields of PUT_KV_CONFIG, GET_KV_CONFIG, DELETE_KV_CONFIG and GET_KVLIST_BY_NAMESPACE."""

    namespace: str | None = None
    key: str | None = None
    value: str | None = None


class RegisterHeader(Header, kw_only=True):
    """The fields of REGISTER_BROKER."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long
    ha_server_addr: str | None = None
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc: Int = msgspec.field(default=0, name="bodyCrc32")
    zone_name: str | None = msgspec.field(default=None, name=ZONE_NAME)
    is_partial: bool = msgspec.field(default=False, name=PARTIAL)


class BrokerHeader(Header):
    """The fields of UNREGISTER_BROKER, BROKER_HEARTBEAT, QUERY_DATA_VERSION,
    GET_BROKER_MEMBER_GROUP and the changes of write permission."""

    broker_name: str = ""
    broker_addr: str = ""
    cluster_name: str | None = None


class RouteHeader(Header):
    """The fields of GET_ROUTEINFO_BY_TOPIC."""

    topic: str | None = None
    accept_standard_json_only: bool = False
    zone_mode: bool = msgspec.field(default=False, name=ZONE_MODE)
    zone_name: str | None = msgspec.field(default=None, name=ZONE_NAME)


class NameServerTopicHeader(Header):
    """The fields of DELETE_TOPIC_IN_NAMESRV and REGISTER_TOPIC_IN_NAMESRV."""

    topic: str | None = None
    cluster_name: str | None = None


class ClusterHeader(Header):
    """The fields of GET_TOPICS_BY_CLUSTER."""

    cluster: str | None = None
