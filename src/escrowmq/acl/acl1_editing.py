"""Edits files of accounts, as RocketMQ's admin requests do; document in, document out. Comments and
the order of members are lost, as in RocketMQ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from escrowmq.acl.acl1_accounts import (
    ACCOUNTS,
    GLOBAL,
    KEY_SIZE_MIN,
    PERMISSIONS,
    VERSION,
    parse_document,
)
from escrowmq.errors import UsageError

if TYPE_CHECKING:
    from escrowmq.acl.yaml_document import Value

_EXPECTED: Final = "'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'"


class AccountFields(msgspec.Struct, kw_only=True):
    """The fields of an account in a request; None means not given."""

    access_key: str
    secret: str | None = None
    address: str | None = None
    is_admin: bool = False
    topic_default: str | None = None
    group_default: str | None = None
    topics: list[str] | None = None
    groups: list[str] | None = None

    def __repr__(self) -> str:
        return f"Wish({self.access_key!r})"


def check_account(fields: AccountFields) -> None:
    """Raise UsageError, with RocketMQ's text, if the account is invalid."""
    if len(fields.access_key) < KEY_SIZE_MIN or len(fields.secret or "") < KEY_SIZE_MIN:
        # RocketMQ repeats the secret here.
        raise UsageError(
            f"The accessKey={fields.access_key} and secretKey cannot be null and length should "
            f"longer than {KEY_SIZE_MIN - 1}"
        )
    for resource in [*(fields.topics or ()), *(fields.groups or ())]:
        parts = [part for part in resource.split("=") if part]
        if len(parts) != 2:
            raise UsageError(
                f"Parse Resource format error for {resource}.\nThe expected resource format is "
                "'Res=Perm'. For example: topicA=SUB"
            )
        if parts[1].strip() not in PERMISSIONS:
            raise UsageError(
                f"Parse resource permission error for {resource}.\n"
                f"The expected permissions are {_EXPECTED}."
            )


def with_account(document: Value, fields: AccountFields, *, now_ms: int) -> dict[str, Any]:
    """Return the file with an account added, or its given fields replaced."""
    check_account(fields)
    members = _mutable_members(document)
    accounts = members[ACCOUNTS]
    account: dict[str, Any] = next(
        (item for item in accounts if item.get("accessKey") == fields.access_key), {}
    )
    said: dict[str, Any] = {
        "accessKey": fields.access_key,
        "secretKey": fields.secret,
        "whiteRemoteAddress": fields.address,
        "admin": fields.is_admin,
        "defaultTopicPerm": fields.topic_default,
        "defaultGroupPerm": fields.group_default,
        "topicPerms": fields.topics,
        "groupPerms": fields.groups,
    }
    changed = account | {name: value for name, value in said.items() if value is not None}
    if account:
        accounts[accounts.index(account)] = changed
    else:
        accounts.append(changed)
    return _with_next_version(members, now_ms)


def without_account(document: Value, access_key: str, *, now_ms: int) -> dict[str, Any]:
    """Return the file without an account."""
    members = _mutable_members(document)
    members[ACCOUNTS] = [item for item in members[ACCOUNTS] if item.get("accessKey") != access_key]
    return _with_next_version(members, now_ms)


def with_trusted_addresses(document: Value, patterns: list[str], *, now_ms: int) -> dict[str, Any]:
    """Return the file with other patterns of addresses that need no authentication."""
    members = _mutable_members(document)
    members[GLOBAL] = patterns
    return _with_next_version(members, now_ms)


def _mutable_members(document: Value) -> dict[str, Any]:
    """Return a copy of the document that can be changed, with `admin` as boolean. Raises UsageError
    if the file is invalid."""
    parse_document(document)
    members: dict[str, Any] = dict(document) if isinstance(document, dict) else {}
    members[ACCOUNTS] = [dict(item) for item in members.get(ACCOUNTS) or ()]
    for account in members[ACCOUNTS]:
        if account.get("admin") is not None:
            account["admin"] = account["admin"].lower() in ("true", "yes", "on", "y")
    return members


def _with_next_version(members: dict[str, Any], now_ms: int) -> dict[str, Any]:
    counter = parse_document({VERSION: members.get(VERSION)}).counter
    return members | {VERSION: [{"counter": counter + 1, "timestamp": now_ms}]}
