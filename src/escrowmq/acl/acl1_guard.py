"""Authorization by ACL 1.0: decides whether a request is allowed, in the order of RocketMQ's
checks."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from escrowmq.acl.acl1_accounts import ANY, DENY, PUB, SUB, Account, Acl1Rules
from escrowmq.acl.request_needs import AdminNeeded, Need
from escrowmq.acl.trusted_addresses import AddressParts
from escrowmq.base.codes import Version
from escrowmq.base.command import Command
from escrowmq.base.message import Topic
from escrowmq.codec.signature import ACCESS_KEY, SIGNATURE, sign_fields

_UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""A header field that old clients add after signing, so that the signature does not cover it."""

_TRACE: Final = Need(Topic.TRACE, PUB)
"""The topic of message traces, to which any account may write."""


def refusal(
    rules: Acl1Rules,
    request: Command,
    parts: AddressParts,
    needs: Callable[[], AdminNeeded | list[Need]],
    *,
    is_proved: bool = False,
) -> str:
    """Return why a request from an address is refused; empty if it is allowed. `needs` is called
    only after authentication. `is_proved`: the account was already proved, so no signature is
    needed."""
    if rules.is_trusted(parts):
        return ""
    ext = request.ext or {}
    access_key = ext.get(ACCESS_KEY)
    if not access_key:
        return "No accessKey is configured"
    account = rules.accounts.get(access_key)
    if account is None:
        return f"No acl config for {access_key}"
    if account.addresses.matches(parts):
        return ""
    if not (is_proved or is_signed(request, account.secret, account.former)):
        return f"Check signature failed for accessKey={access_key}"
    if account.is_admin:
        return ""
    return _missing_right(account, request, needs())


def is_permitted(rules: Acl1Rules, access_key: str, need: Need, parts: AddressParts) -> bool:
    """Whether an account that was authenticated earlier, or a trusted address, has a right."""
    if rules.is_trusted(parts):
        return True
    account = rules.accounts.get(access_key)
    if account is None:
        return False
    # From one of the account's own addresses, its key alone is enough for everything.
    return account.is_admin or account.addresses.matches(parts) or not _refusal_text(account, need)


def administrator_refusal(rules: Acl1Rules, request: Command, *, is_proved: bool = False) -> str:
    """Return why a request is not accepted as an administrator's; empty if it is. `is_proved`: the
    account was already proved, so no signature is needed."""
    access_key = (request.ext or {}).get(ACCESS_KEY)
    if not access_key:
        return "No accessKey is configured"
    account = rules.accounts.get(access_key)
    if account is None:
        return f"No acl config for {access_key}"
    if not (is_proved or is_signed(request, account.secret, account.former)):
        return f"Check signature failed for accessKey={access_key}"
    return "" if account.is_admin else f"accessKey={access_key} is no administrator"


def is_signed(request: Command, secret: str, former: str = "") -> bool:
    """Whether a request is signed with an account's secret, or with its former one."""
    return _is_signed_with(request, secret) or bool(former and _is_signed_with(request, former))


def _is_signed_with(request: Command, secret: str) -> bool:
    """Verify a request's signature, in constant time."""
    fields = request.ext or {}
    if request.version <= Version.V4_9_3 and _UNIQUE_KEY_QUERY in fields:
        fields = {name: text for name, text in fields.items() if name != _UNIQUE_KEY_QUERY}
    try:
        expected = sign_fields(fields, request.body, secret=secret).encode()
        return hmac.compare_digest(expected, fields.get(SIGNATURE, "").encode())
    except UnicodeEncodeError:  # half a surrogate pair, which no signer can have encoded
        return False


def _missing_right(account: Account, request: Command, needs: AdminNeeded | list[Need]) -> str:
    """Return the refusal for the first right that an account lacks; empty if it has all."""
    if isinstance(needs, AdminNeeded):
        return (
            f"Need admin permission for request code={request.code}, "
            f"but accessKey={account.access_key} is not"
        )
    for need in needs:
        text = "" if need == _TRACE else _refusal_text(account, need)
        if text:
            return text
    return ""


def _refusal_text(account: Account, need: Need) -> str:
    owned, is_listed = account.right_to(need.resource)
    if need.resource not in ("", Topic.RETRY_PREFIX) and includes_right(owned, need.right):
        return ""
    kind, name = "topic", need.resource
    if name.startswith(Topic.RETRY_PREFIX):
        kind, name = "group", name.removeprefix(Topic.RETRY_PREFIX)
    return f"No {'' if is_listed else 'default '}permission for {kind}:{name}"


def includes_right(owned: int, needed: int) -> bool:
    """Whether the rights to a resource include the needed one."""
    if owned & DENY:
        return False
    return bool(owned & (PUB | SUB if needed & ANY else needed))
