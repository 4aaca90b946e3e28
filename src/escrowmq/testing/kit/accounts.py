"""Accounts of a test's broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from escrowmq.acl.acl1_accounts import PERMISSIONS
from escrowmq.acl.yaml_document import encode_yaml
from escrowmq.errors import UsageError


class Account(msgspec.Struct, frozen=True):
    """An account with its rights: topics and groups by name, each with `PUB`, `SUB`, `PUB|SUB` or
    `DENY`. All others are denied.

    >>> from escrowmq.testing import Account
    >>> mailer = Account("mailer-1", "secret", topics={"paid": "SUB"}, groups={"mailer": "SUB"})
    """

    access_key: str
    secret_key: str
    topics: Mapping[str, str] = {}
    groups: Mapping[str, str] = {}
    is_admin: bool = False
    """An administrator may do everything."""


def accounts_file(accounts: Sequence[Account]) -> bytes:
    """Return the content of a plain_acl.yml with these accounts."""
    return encode_yaml({"accounts": [_account_entry(account) for account in accounts]})


def _account_entry(account: Account) -> dict[str, str | list[str]]:
    return {
        "accessKey": account.access_key,
        "secretKey": account.secret_key,
        "admin": str(account.is_admin).lower(),
        "defaultTopicPerm": "DENY",
        "defaultGroupPerm": "DENY",
        "topicPerms": _format_rights(account.topics),
        "groupPerms": _format_rights(account.groups),
    }


def _format_rights(given: Mapping[str, str]) -> list[str]:
    for name, right in given.items():
        if right not in PERMISSIONS:
            raise UsageError(
                f"the right {right!r} to {name!r}: one of {', '.join(PERMISSIONS)} is expected"
            )
    return [f"{name}={right}" for name, right in given.items()]
