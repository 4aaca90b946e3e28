"""Brokers' requests: registration, heartbeats, comparison and unregistration."""

from __future__ import annotations

import logging

from escrowmq.base.codes import NOT_SET, Response
from escrowmq.codec import fastjson
from escrowmq.codec.hashes import body_crc
from escrowmq.codec.routes import (
    decode_registration,
    decode_version,
    encode_kv_table,
    encode_member_group,
)
from escrowmq.registry.handler_values import DONE, RegistryAnswer, RegistryRequest, RegistryState
from escrowmq.registry.headers import BrokerHeader, RegisterHeader
from escrowmq.registry.kv_config import ORDER_CONF
from escrowmq.registry.live_brokers import RegisteringBroker

_log = logging.getLogger(__name__)


def register(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:
    """Register a broker with its topics (REGISTER_BROKER)."""
    header = request.header(RegisterHeader)
    command = request.command
    if header.body_crc and header.body_crc != body_crc(command.body):
        return RegistryAnswer(Response.SYSTEM_ERROR, {}, remark="crc32 not match")
    body = decode_registration(
        command.body, is_compressed=header.compressed, sender_version=command.version
    )
    broker = RegisteringBroker(
        cluster=header.cluster_name,
        address=header.broker_addr,
        name=header.broker_name,
        broker_id=header.broker_id,
        ha_address=header.ha_server_addr,
        zone=header.zone_name,
        timeout_ms=header.heartbeat_timeout_millis,
        has_acting_master=header.enable_acting_master,
        is_partial=header.is_partial,
    )
    is_new = state.routes.live.version_of(broker.cluster, broker.address) is None
    welcome = state.routes.register(broker, body, peer=request.peer, now_ms=request.now_ms)
    if welcome is None:
        return RegistryAnswer(Response.SYSTEM_ERROR, {}, remark="register broker failed")
    if is_new:
        _log.info("broker %s at %s is registered", broker.name, broker.address)
    ext = {"haServerAddr": welcome.ha_address, "masterAddr": welcome.master_address}
    conf = state.kv.namespace_items(ORDER_CONF) if state.settings.returns_order_conf else None
    return RegistryAnswer(
        ext={name: text for name, text in ext.items() if text is not None},
        body=b"" if conf is None else encode_kv_table(conf),
    )


def unregister(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:
    """Remove a broker (UNREGISTER_BROKER)."""
    header = request.header(BrokerHeader)
    state.routes.unregister(
        header.cluster_name,
        header.broker_addr,
        header.broker_name,
        now_ms=request.now_ms,
        has_said_so=True,
    )
    return DONE


def heartbeat(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:
    """Keep a broker registered (BROKER_HEARTBEAT)."""
    header = request.header(BrokerHeader)
    state.routes.live.note_heartbeat(header.cluster_name, header.broker_addr, request.now_ms)
    return DONE


def query_version(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:
    """Compare a broker's table version with the registered one (QUERY_DATA_VERSION); also counts as
    a heartbeat."""
    header = request.header(BrokerHeader)
    body = request.command.body
    theirs = decode_version(body) if body else None
    ours = state.routes.live.version_of(header.cluster_name, header.broker_addr)
    state.routes.live.note_heartbeat(header.cluster_name, header.broker_addr, request.now_ms)
    is_changed = ours is None or ours != theirs
    return RegistryAnswer(
        ext={"changed": "true" if is_changed else "false"},
        body=b"" if ours is None else fastjson.encode(ours),
    )


def member_group(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:
    """Return the members of a broker group (GET_BROKER_MEMBER_GROUP)."""
    header = request.header(BrokerHeader)
    members = state.routes.broker_addresses(header.broker_name)
    return RegistryAnswer(
        body=encode_member_group(header.cluster_name, header.broker_name, members), remark=NOT_SET
    )
