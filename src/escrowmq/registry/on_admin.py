"""Administrators' requests: key-value configuration, permissions, topics, settings."""

from __future__ import annotations

from escrowmq.base.codes import Response
from escrowmq.codec.java_properties import ConfError, parse_java_properties
from escrowmq.codec.routes import decode_route, encode_kv_table
from escrowmq.errors import UsageError
from escrowmq.registry.handler_values import DONE, RegistryAnswer, RegistryRequest, RegistryState
from escrowmq.registry.headers import BrokerHeader, KvHeader, NameServerTopicHeader


def put_kv(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:
    """Set a value of a namespace (PUT_KV_CONFIG)."""
    header = request.header(KvHeader)
    if header.namespace is None or header.key is None:
        return RegistryAnswer(Response.SYSTEM_ERROR, remark="namespace or key is null")
    state.kv.put(header.namespace, header.key, header.value)
    state.routes.count_change()
    return DONE


def get_kv(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:
    """Return one value of a namespace (GET_KV_CONFIG)."""
    header = request.header(KvHeader)
    value = state.kv.get(header.namespace, header.key)
    if value is not None:
        return RegistryAnswer(ext={"value": value})
    text = f"No config item, Namespace: {header.namespace or 'null'} Key: {header.key or 'null'}"
    return RegistryAnswer(Response.QUERY_NOT_FOUND, {}, remark=text)


def delete_kv(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:
    """Delete an item of a namespace (DELETE_KV_CONFIG); succeeds also if it is missing."""
    header = request.header(KvHeader)
    state.kv.delete(header.namespace, header.key)
    state.routes.count_change()
    return DONE


def list_kv(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:
    """Return all values of a namespace (GET_KVLIST_BY_NAMESPACE)."""
    namespace = request.header(KvHeader).namespace
    table = state.kv.namespace_items(namespace)
    if table is not None:
        return RegistryAnswer(body=encode_kv_table(table))
    text = f"No config item, Namespace: {namespace or 'null'}"
    return RegistryAnswer(Response.QUERY_NOT_FOUND, remark=text)


def remove_write_permission(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:
    """Remove the write permission from a broker's topics (WIPE_WRITE_PERM_OF_BROKER)."""
    count = state.routes.remove_write_permission(request.header(BrokerHeader).broker_name)
    return RegistryAnswer(ext={"wipeTopicCount": str(count)})


def restore_write_permission(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:
    """Allow writing to a broker's topics again (ADD_WRITE_PERM_OF_BROKER)."""
    count = state.routes.restore_write_permission(request.header(BrokerHeader).broker_name)
    return RegistryAnswer(ext={"addTopicCount": str(count)})


def delete_topic(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:
    """Remove a topic from the routes (DELETE_TOPIC_IN_NAMESRV)."""
    header = request.header(NameServerTopicHeader)
    if header.topic is not None:
        state.routes.delete_topic(header.topic, header.cluster_name)
    return DONE


def register_topic(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:
    """Add a topic to the routes (REGISTER_TOPIC_IN_NAMESRV)."""
    header = request.header(NameServerTopicHeader)
    if request.command.body and header.topic is not None:
        queues = decode_route(request.command.body).queue_datas
        state.routes.register_topic(header.topic, queues or [])
    return DONE


def update_config(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:
    """Change settings (UPDATE_NAMESRV_CONFIG)."""
    try:
        texts = parse_java_properties(request.command.body.decode("utf-8", "replace"))
    except ConfError:
        return RegistryAnswer(Response.SYSTEM_ERROR, remark="string2Properties error")
    if state.config.has_forbidden_key(texts):
        return RegistryAnswer(Response.NO_PERMISSION, remark="Can not update config in black list.")
    try:
        state.config.update(texts)
    except UsageError as error:
        return RegistryAnswer(Response.SYSTEM_ERROR, remark=str(error))
    state.routes.count_change()
    return DONE


def get_config(state: RegistryState, request: RegistryRequest) -> RegistryAnswer:  # noqa: ARG001
    """Return the settings (GET_NAMESRV_CONFIG)."""
    return RegistryAnswer(body=state.config.settings_text().encode())
