"""The rights that requests need under ACL 2.0, to topics, groups, and the cluster.

Clients' requests need rights to the same topics and groups as with ACL 1.0 (request_needs.py),
found from stored data. Operators' requests need what RocketMQ 5.3.3 requires, or else rights to the
cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from escrowmq.acl import acl1_accounts
from escrowmq.acl.acl2_policies import Access, Action, Resource, ResourceKind
from escrowmq.acl.request_needs import ADMIN, AdminNeeded, Need, Needs, StoredDataLookup, needs_of
from escrowmq.base.command import Command
from escrowmq.base.message import Topic
from escrowmq.codec.client_bodies import decode_body

Actions = frozenset[Action]

PUB: Final = frozenset({Action.PUB})
SUB: Final = frozenset({Action.SUB})
GET: Final = frozenset({Action.GET})
CREATE: Final = frozenset({Action.CREATE})
UPDATE: Final = frozenset({Action.UPDATE})
DELETE: Final = frozenset({Action.DELETE})
SUB_GET: Final = frozenset({Action.SUB, Action.GET})
SUB_UPDATE: Final = frozenset({Action.SUB, Action.UPDATE})
PUB_SUB_GET: Final = frozenset({Action.PUB, Action.SUB, Action.GET})
CREATE_UPDATE: Final = frozenset({Action.CREATE, Action.UPDATE})


def topic_access(topic: str, actions: Actions) -> Access:
    """Return the access for these actions on a topic; for a retry topic, on its group."""
    if topic.startswith(Topic.RETRY_PREFIX):
        return group_access(topic, actions)
    return Access(Resource(ResourceKind.TOPIC, topic), actions)


def group_access(group: str, actions: Actions) -> Access:
    """Return the access for these actions on a group, given by its name or by that of its retry
    topic."""
    return Access(Resource(ResourceKind.GROUP, group.removeprefix(Topic.RETRY_PREFIX)), actions)


def cluster_access(cluster: str, actions: Actions) -> Access:
    """Return the access for these actions on the cluster."""
    return Access(Resource(ResourceKind.CLUSTER, cluster), actions)


# -- fields of operators' requests ---------------------------------------------------------------


class FieldAccesses(msgspec.Struct, frozen=True):
    """Returns the accesses that a request needs to the resources that its header fields name, in
    the order of the fields."""

    actions: Actions
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    groups_first: bool = True
    lists: Mapping[str, str] = {}
    """By name of a field that has several names: the separators between them."""

    def __call__(self, request: Command) -> Iterator[Access]:
        """Return the accesses that a request needs; none for fields that it does not have."""
        ext = request.ext or {}
        order: list[tuple[str, Callable[[str, Actions], Access]]]
        order = [(name, group_access) for name in self.groups]
        at = len(order) if self.groups_first else 0
        order[at:at] = [(name, topic_access) for name in self.topics]
        for name, make in order:
            value = ext.get(name)
            if value is None:
                continue
            separator = self.lists.get(name)
            for each in value.split(separator) if separator else [value]:
                if each or not separator:
                    yield make(each, self.actions)


def field_accesses(
    actions: Actions, *, groups: str = "", topics: str = "", groups_first: bool = True
) -> FieldAccesses:
    """Return a function that makes the accesses for resources in header fields. `groups` and
    `topics` are names of fields, separated by blanks."""
    return FieldAccesses(actions, tuple(topics.split()), tuple(groups.split()), groups_first)


def route_access(request: Command) -> Iterable[Access]:
    """Return the accesses for a route: any right to the topic, and a right to the named group."""
    ext = request.ext or {}
    yield topic_access(ext.get("topic", ""), PUB_SUB_GET)
    if ext.get("consumerGroup"):
        yield group_access(ext["consumerGroup"], SUB)


# -- bodies of operators' requests ----------------------------------------------------------------


class _GroupBody(msgspec.Struct, rename="camel"):
    group_name: str


class _GroupsBody(msgspec.Struct, rename="camel"):
    group_config_list: list[_GroupBody]


class _TopicBody(msgspec.Struct, rename="camel"):
    topic_name: str


class _TopicsBody(msgspec.Struct, rename="camel"):
    topic_config_list: list[_TopicBody]


def new_group_access(request: Command) -> Iterable[Access]:
    """Return the access for a group that is created or changed."""
    return (group_access(decode_body(_GroupBody, request.body).group_name, CREATE_UPDATE),)


def new_groups_accesses(request: Command) -> Iterable[Access]:
    """Return the accesses for groups that are created or changed."""
    body = decode_body(_GroupsBody, request.body)
    return [group_access(one.group_name, CREATE_UPDATE) for one in body.group_config_list]


def new_topics_accesses(request: Command) -> Iterable[Access]:
    """Return the accesses for topics that are created or changed."""
    body = decode_body(_TopicsBody, request.body)
    return [topic_access(one.topic_name, CREATE) for one in body.topic_config_list]


# -- what requests need ----------------------------------------------------------------------------

_RIGHTS: Final = {acl1_accounts.PUB: PUB, acl1_accounts.SUB: SUB, acl1_accounts.ANY: GET}


class RightsRule(msgspec.Struct, frozen=True):
    """The rights that a kind of request needs, under each kind of access control."""

    needs: Needs = ADMIN
    """The rights to topics and groups. Under ACL 1.0 there are no others, and everything else is
    for administrators."""

    accesses: Callable[[Command], Iterable[Access]] | None = None
    """Returns the rights that a request needs under ACL 2.0. If it is not set, they follow from
    `needs`."""

    actions: Actions | None = None
    """The actions that ACL 2.0 requires on the resources in `needs`; if not set, Pub and Sub as in
    `needs`."""

    is_read_only: bool = False
    """Whether the request only reads. If it names no resource, ACL 2.0 requires Get on the cluster
    for one that only reads, and Update for others."""

    changes_rights: bool = False
    """Whether the request changes rights, which only a super user may do. (RocketMQ requires Update
    on the cluster, so its users can grant themselves everything:
    DefaultAuthorizationContextBuilder, 5.3.3.)"""


OPERATOR_CHANGE: Final = RightsRule()
"""The rule for operators' requests that change something."""

OPERATOR_READ: Final = RightsRule(is_read_only=True)
"""The rule for operators' requests that only read."""


def accesses_of(
    rule: RightsRule, request: Command, places: StoredDataLookup, *, cluster: str
) -> list[Access]:
    """Return the accesses that a request needs, partly found from stored data. If it names no
    resource, it needs access to the cluster."""
    if rule.accesses is not None:
        found = list(rule.accesses(request))
    else:
        needs = needs_of(rule.needs, request, places)
        if not needs:
            return []
        listed = needs.needs if isinstance(needs, AdminNeeded) else needs
        found = [_need_to_access(need, rule.actions) for need in listed]
    # An empty name belongs to no one; only an account with all rights to the cluster may ask about
    # it.
    if found and all(access.resource.name for access in found):
        return found
    return [cluster_access(cluster, GET if rule.is_read_only else UPDATE)]


def _need_to_access(need: Need, actions: Actions | None) -> Access:
    return topic_access(need.resource, actions or _RIGHTS[need.right])
