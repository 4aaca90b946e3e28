"""Authorization by ACL 2.0: identifies the user of a request, and decides whether it is allowed."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from escrowmq.acl.acl2_authentication import authenticate
from escrowmq.acl.acl2_policies import (
    Access,
    Action,
    Decision,
    PatternKind,
    Policies,
    Resource,
    ResourceKind,
)
from escrowmq.acl.acl2_users import USER, User, UserTable
from escrowmq.acl.request_needs import is_inner_topic, matches_only_inner
from escrowmq.base.command import Command

_FAILED: Final = "Authorization failed. Please verify your access rights and try again."
_ACCOUNTS: Final = (
    "has no permission to change users, policies or accounts: an account that can grant rights "
    "has all of them, so this is for super users."
)

_READING: Final = frozenset({Action.SUB, Action.GET, Action.LIST})


class AuthRequirements(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that need authentication, and those that need authorization."""

    is_authorized: bool
    """Whether rights are checked; if not, only names and passwords are."""
    unauthenticated: frozenset[int] = frozenset()
    """Codes of requests that need no authentication."""
    unauthorized: frozenset[int] = frozenset()
    """Codes of requests that need no authorization."""
    as_rocketmq: bool = False
    """Whether to allow what RocketMQ 5.3.3 allows without a right (docs/security.md)."""


class RequestNeeds(Protocol):
    """The rights that a request needs; they are determined only after authentication."""

    @property
    def changes_rights(self) -> bool:
        """Whether the request changes rights."""

    def accesses(self) -> list[Access]:
        """Return the rights that the request needs."""


def refusal(
    book: UserTable,
    request: Command,
    host: str,
    needs: RequestNeeds,
    requirements: AuthRequirements,
    *,
    is_proved: bool = False,
) -> str:
    """Return why a request from an address is refused, with RocketMQ's text; empty if it is
    allowed. `is_proved`: the user was already proved, so no signature is needed."""
    user, reason = authenticate(book, request, is_proved=is_proved)
    if reason and request.code not in requirements.unauthenticated:
        return reason
    # RocketMQ has a whitelist for each step: a request may need authentication but no rights.
    if not requirements.is_authorized or request.code in requirements.unauthorized:
        return ""
    if user is not None and user.is_super:
        return ""
    # An account that can change accounts could give itself every other right.
    if needs.changes_rights and not requirements.as_rocketmq:
        return _FAILED if user is None else f"{USER}{user.name} {_ACCOUNTS}"
    for access in needs.accesses():
        if user is None:
            return _FAILED
        reason = missing_right(book, user, access, host)
        if reason:
            return reason
    return ""


def super_user_refusal(book: UserTable, request: Command, *, is_proved: bool = False) -> str:
    """Return why a request is not accepted as a super user's; empty if it is. `is_proved`: the user
    was already proved, so no signature is needed."""
    user, reason = authenticate(book, request, is_proved=is_proved)
    if user is None:
        return reason
    return "" if user.is_super else f"{USER}{user.name} is no super user."


def covers_own_topics(resource: Resource, access: Access) -> bool:
    """Whether an entry for a resource may allow an access to the broker's own topics: the access
    must only read, and the resource must name the topic in full, or by a prefix that no other topic
    has."""
    is_named = resource.shape is PatternKind.LITERAL or matches_only_inner(resource.name)
    return resource.kind is ResourceKind.TOPIC and is_named and access.actions <= _READING


def missing_right(book: UserTable, user: User, access: Access, host: str) -> str:
    """Return why a user may not do something from an address; empty if the user may."""
    if user.is_super:
        return ""
    resource = access.resource
    is_own = (
        not book.as_rocketmq
        and resource.kind is ResourceKind.TOPIC
        and is_inner_topic(resource.name)
    )
    policies = book.policies.get(user.name, Policies())
    matching = policies.matching_entries(access, host, as_rocketmq=book.as_rocketmq)
    is_allowed = bool(matching) and matching[0].decision is Decision.ALLOW
    if is_allowed and (not is_own or covers_own_topics(matching[0].resource, access)):
        return ""
    if is_own:
        return (
            f"{USER}{user.name} has no permission to access {resource} from {host}, it is the "
            "broker's own: for super users, or to be read by who has an entry that names it."
        )
    detail = "the decision is deny." if matching else "no matched policies."
    return f"{USER}{user.name} has no permission to access {resource} from {host}, {detail}"
