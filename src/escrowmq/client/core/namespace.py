"""Namespaces, version 1: a prefix, followed by `%`, of every topic's and group's name."""

from __future__ import annotations

from typing import Final

from escrowmq.base.message import NOT_SENDABLE, Topic

_PREFIXES: Final = (Topic.RETRY_PREFIX, Topic.DLQ_PREFIX)
_SYSTEM_GROUP: Final = "CID_RMQ_SYS_"
_SYSTEM_TOPICS: Final = NOT_SENDABLE | {Topic.DEFAULT, Topic.BENCHMARK, Topic.TRACE}
_MARK: Final = "%"


def with_namespace(name: str, namespace: str) -> str:
    """Return the name that brokers use for a user's name."""
    if not namespace or not name or _is_system(name):
        return name
    front, rest = _split_prefix(name)
    if rest.startswith(namespace + _MARK):
        return name
    return f"{front}{namespace}{_MARK}{rest}"


def without_namespace(name: str, namespace: str) -> str:
    """Return the user's name for a name that brokers use."""
    front, rest = _split_prefix(name)
    if namespace and rest.startswith(namespace + _MARK):
        return front + rest[len(namespace) + 1 :]
    return name


def _split_prefix(name: str) -> tuple[str, str]:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _is_system(name: str) -> bool:
    return name in _SYSTEM_TOPICS or name.startswith((Topic.SYSTEM_PREFIX, _SYSTEM_GROUP))
