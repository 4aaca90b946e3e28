"""Explains why a request is allowed or denied, by making the checks of both kinds of access control
one by one."""

from __future__ import annotations

from typing import Final

from escrowmq.acl.acl1_accounts import ANY, DENY, PERMISSIONS, PUB, SUB, Account, Acl1Rules
from escrowmq.acl.acl1_guard import includes_right
from escrowmq.acl.acl2_guard import covers_own_topics
from escrowmq.acl.acl2_policies import (
    Access,
    Action,
    Decision,
    PatternKind,
    Policies,
    PolicyEntry,
    Resource,
    ResourceKind,
    enum_member,
    parse_resource,
)
from escrowmq.acl.acl2_users import KnownUsers, UserStatus, UserTable
from escrowmq.acl.request_needs import group_resource, is_inner_topic
from escrowmq.acl.trusted_addresses import address_parts
from escrowmq.base.message import Topic
from escrowmq.codec.acl2_bodies import AccessJudgement, AccessQuestion
from escrowmq.errors import UsageError

_RIGHTS: Final = {Action.PUB: PUB, Action.SUB: SUB, Action.ANY: ANY}
_NAMES: Final = {right: name for name, right in reversed(PERMISSIONS.items())}


def question_access(question: AccessQuestion) -> Access:
    """Return the access that a question asks about. Raises UsageError if the question is
    invalid."""
    action = enum_member(Action, question.action)
    if action is None:
        allowed = ", ".join(one.value.lower() for one in Action)
        raise UsageError(f"{question.action!r} is not an action; allowed are {allowed}")
    resource = parse_resource(question.resource)
    if resource is None or resource.kind is ResourceKind.ANY:
        resource = Resource(ResourceKind.TOPIC, question.resource)
    if resource.shape is not PatternKind.LITERAL or not resource.name:
        raise UsageError(f"{question.resource!r}: one topic, group or cluster is expected")
    if resource.kind is ResourceKind.TOPIC and resource.name.startswith(Topic.RETRY_PREFIX):
        resource = Resource(ResourceKind.GROUP, resource.name.removeprefix(Topic.RETRY_PREFIX))
    return Access(resource, frozenset({action}))


# -- ACL 1.0 -------------------------------------------------------------------------------------


def explain_account(rules: Acl1Rules, question: AccessQuestion) -> AccessJudgement:
    """Decide a question by the accounts of plain_acl.yml. The signature is assumed to be valid."""
    access = question_access(question)
    parts = address_parts(question.address)
    steps: list[str] = []

    def decide(is_allowed: bool, reason: str) -> AccessJudgement:
        steps.append(reason)
        return AccessJudgement(acl="1.0", is_allowed=is_allowed, decided_by=reason, steps=steps)

    if rules.is_trusted(parts):
        return decide(True, f"{question.address} is in globalWhiteRemoteAddresses")
    steps.append(f"{question.address} is not in globalWhiteRemoteAddresses")
    account = rules.accounts.get(question.user)
    if account is None:
        return decide(False, f"there is no account {question.user}")
    steps.append(f"account {question.user} stands in {rules.homes[question.user]}")
    if account.addresses.matches(parts):
        return decide(True, f"{question.address} is the account's whiteRemoteAddress")
    if account.is_admin:
        return decide(True, "admin: true")
    steps.append("admin: false")
    return decide(*_explain_right(account, access))


def _explain_right(account: Account, access: Access) -> tuple[bool, str]:
    resource = access.resource
    (action,) = access.actions
    right = _RIGHTS.get(action)
    if right is None or resource.kind not in (ResourceKind.TOPIC, ResourceKind.GROUP):
        return False, f"{action.value} on {resource} is for administrators"
    if resource.kind is ResourceKind.TOPIC:
        # Clients send traces automatically, so a refusal would concern something that the user
        # never requested.
        if resource.name == Topic.TRACE and right == PUB:
            return True, "any account may write traces"
        if is_inner_topic(resource.name):
            return False, f"{resource.name} is the broker's own: for administrators"
    is_group = resource.kind is ResourceKind.GROUP
    owned, is_listed = account.right_to(
        group_resource(resource.name) if is_group else resource.name
    )
    kind = "group" if is_group else "topic"
    where = f"{kind}Perms: {resource.name}" if is_listed else f"default{kind.capitalize()}Perm"
    text = _NAMES.get(owned, "DENY" if owned & DENY else str(owned))
    return includes_right(owned, right), f"{where}={text}"


# -- ACL 2.0 -------------------------------------------------------------------------------------


def explain_user(
    book: UserTable | KnownUsers,
    question: AccessQuestion,
    *,
    is_authorized: bool = True,
    as_rocketmq: bool = False,
) -> AccessJudgement:
    """Decide a question by users and policies. The signature is assumed to be valid."""
    access = question_access(question)
    steps: list[str] = []

    def decide(is_allowed: bool, reason: str) -> AccessJudgement:
        steps.append(reason)
        return AccessJudgement(acl="2.0", is_allowed=is_allowed, decided_by=reason, steps=steps)

    user = book.users.get(question.user)
    if user is None:
        return decide(False, f"there is no user {question.user}")
    if user.status is UserStatus.DISABLE:
        return decide(False, f"user {user.name} is disabled")
    steps.append(f"user {user.name} is enabled")
    if not is_authorized:
        return decide(True, "authorizationEnabled=false: a name is enough")
    if user.is_super:
        return decide(True, f"{user.name} is a super user")
    is_own = (
        not as_rocketmq
        and access.resource.kind is ResourceKind.TOPIC
        and is_inner_topic(access.resource.name)
    )
    policies = book.policies.get(user.name, Policies())
    found = policies.matching_entries(access, question.address, as_rocketmq=as_rocketmq)
    own_reason = (
        f"{access.resource.name} is the broker's own: for super users, or to be read by who has "
        "an entry that names it"
    )
    if not found:
        return decide(False, own_reason if is_own else "no entry matches")
    kind = "custom" if found[0] in policies.custom else "default"
    if kind == "default":
        steps.append("no custom entry matches")
    steps += [f"{_describe_entry(entry, kind)} matches, and counts less" for entry in found[1:]]
    is_allowed = found[0].decision is Decision.ALLOW
    if is_own and not covers_own_topics(found[0].resource, access):
        steps.append(f"{_describe_entry(found[0], kind)} matches")
        return decide(False, own_reason)
    return decide(is_allowed, _describe_entry(found[0], kind))


def _describe_entry(entry: PolicyEntry, kind: str) -> str:
    actions = "|".join(action.value for action in entry.actions)
    sources = f" from {', '.join(entry.sources)}" if entry.sources else ""
    return f"{kind} entry {entry.resource} {actions}{sources}: {entry.decision.value}"
