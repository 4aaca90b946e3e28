"""Requests of clients and administrators for routes and lists."""

from __future__ import annotations

from typing import Final

from escrowmq.base.codes import FAQ, Response, Version
from escrowmq.codec.routes import (
    TopicRoute,
    encode_cluster_info,
    encode_departed_brokers,
    encode_route,
    encode_topic_list,
)
from escrowmq.registry.handler_values import RegistryAnswer, RegistryRequest, RegistryState
from escrowmq.registry.headers import ClusterHeader, RouteHeader
from escrowmq.registry.kv_config import ORDER_CONF
from escrowmq.registry.zone_routes import route_in_zone

_DISABLED: Final = RegistryAnswer(Response.SYSTEM_ERROR, remark="disable")


def get_route(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:
    """Return the route of a topic (GET_ROUTEINFO_BY_TOPIC)."""
    header = request.header(RouteHeader)
    settings = state.settings
    if settings.waits_for_service:
        age_ms = request.now_ms - state.started_ms
        if age_ms < settings.wait_seconds * 1000:
            return RegistryAnswer(Response.SYSTEM_ERROR, remark="name server not ready")
    is_standard = request.command.version >= Version.V4_9_4 or header.accept_standard_json_only
    if header.zone_mode and (header.zone_name or "").strip():
        return _route_in_zone(state, header)
    cached = state.cached_routes()
    body = cached.get((header.topic or "", is_standard))
    if body is None:
        found = _find_route(state, header.topic)
        if isinstance(found, RegistryAnswer):
            return found
        body = cached[header.topic or "", is_standard] = encode_route(
            found, is_standard=is_standard
        )
    return RegistryAnswer(body=body)


def _find_route(state: RegistryState, topic: str | None) -> TopicRoute | RegistryAnswer:
    found = state.routes.route(topic) if topic is not None else None
    if found is None:
        text = f"No topic route info in name server for the topic: {topic or 'null'}{FAQ}"
        return RegistryAnswer(Response.TOPIC_NOT_EXIST, remark=text)
    if state.settings.serves_order_conf:
        found.order_topic_conf = state.kv.get(ORDER_CONF, topic)
    return found


def _route_in_zone(state: RegistryState, header: RouteHeader) -> RegistryAnswer:
    found = _find_route(state, header.topic)
    if isinstance(found, RegistryAnswer):
        return found
    # As in RocketMQ: ZoneRouteRPCHook encodes the route again, and ignores which form the client
    # wanted.
    return RegistryAnswer(
        body=encode_route(route_in_zone(found, header.zone_name or ""), is_standard=False)
    )


def cluster_info(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:  # noqa: ARG001
    """Return the clusters and their brokers (GET_BROKER_CLUSTER_INFO)."""
    return RegistryAnswer(body=encode_cluster_info(state.routes.cluster_info()))


def gone_brokers(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:
    """Return the brokers that left recently (ESCROW_GONE_BROKERS)."""
    return RegistryAnswer(body=encode_departed_brokers(state.routes.gone.recent(request.now_ms)))


def all_topics(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:  # noqa: ARG001
    """Return all topics (GET_ALL_TOPIC_LIST_FROM_NAMESERVER)."""
    if not state.settings.lists_all_topics:
        return _DISABLED
    return RegistryAnswer(body=encode_topic_list(state.routes.topics()))


def topics_of_cluster(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:
    """Return the topics of a cluster (GET_TOPICS_BY_CLUSTER)."""
    if not state.settings.lists_topics:
        return _DISABLED
    cluster = request.header(ClusterHeader).cluster
    return RegistryAnswer(body=encode_topic_list(state.routes.topics_of_cluster(cluster)))


def system_topics(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:  # noqa: ARG001
    """Return the names of clusters and brokers, which RocketMQ lists as system topics
    (GET_SYSTEM_TOPIC_LIST_FROM_NS)."""
    names, address = state.routes.system_topics()
    return RegistryAnswer(body=encode_topic_list(names, broker_address=address))


def unit_topics(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:  # noqa: ARG001
    """Return the topics with the unit flag (GET_UNIT_TOPIC_LIST)."""
    return _answer_unit_topics(state, is_unit=True, is_subscribed=None)


def unit_subscribed_topics(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:  # noqa: ARG001
    """Return the topics with the flag of a subscribed unit (GET_HAS_UNIT_SUB_TOPIC_LIST)."""
    return _answer_unit_topics(state, is_unit=None, is_subscribed=True)


def subscribed_not_unit_topics(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:  # noqa: ARG001
    """Return the topics with the flag of a subscribed unit, but not the unit flag
    (GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)."""
    return _answer_unit_topics(state, is_unit=False, is_subscribed=True)


def _answer_unit_topics(
    state: RegistryState, *, is_unit: bool | None, is_subscribed: bool | None
) -> RegistryAnswer:
    if not state.settings.lists_topics:
        return _DISABLED
    topics = state.routes.unit_topics(is_unit=is_unit, is_subscribed=is_subscribed)
    return RegistryAnswer(body=encode_topic_list(topics))
