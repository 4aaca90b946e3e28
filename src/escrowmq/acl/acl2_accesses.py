"""What a request needs of a user of ACL 2.0: rights to topics, groups, and the cluster.

Requests of clients need the same topics and groups as with ACL 1.0 (request_needs.py), found by
what is stored; requests of operators need what RocketMQ 5.3.3 asks for where it asks, and else the
cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from escrowmq.acl import acl1_accounts
from escrowmq.acl.acl2_policies import Access, Action, Resource, ResourceKind
from escrowmq.acl.request_needs import ADMIN, Admin, Need, Needs, Places, needs_of
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
    """Rights to a topic; a retry topic is its group."""
    if topic.startswith(Topic.RETRY_PREFIX):
        return group_access(topic, actions)
    return Access(Resource(ResourceKind.TOPIC, topic), actions)


def group_access(group: str, actions: Actions) -> Access:
    """Rights to a group, by its name or that of its retry topic."""
    return Access(Resource(ResourceKind.GROUP, group.removeprefix(Topic.RETRY_PREFIX)), actions)


def cluster_access(cluster: str, actions: Actions) -> Access:
    """Rights to the cluster."""
    return Access(Resource(ResourceKind.CLUSTER, cluster), actions)


# -- fields of operators' requests ---------------------------------------------------------------


class Fields(msgspec.Struct, frozen=True):
    """Rights to whatever is named in some fields, in their order."""

    actions: Actions
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    groups_first: bool = True
    lists: Mapping[str, str] = {}
    """Fields with several names, and what stands between these."""

    def __call__(self, request: Command) -> Iterator[Access]:
        """What is needed; nothing of fields that are absent."""
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


def fields(
    actions: Actions, *, groups: str = "", topics: str = "", groups_first: bool = True
) -> Fields:
    """Rights to what stands in some fields, their names with blanks between."""
    return Fields(actions, tuple(topics.split()), tuple(groups.split()), groups_first)


def routed(request: Command) -> Iterable[Access]:
    """A route is for whoever may do anything with the topic, and as the group that it names."""
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


def new_group(request: Command) -> Iterable[Access]:
    """A group that is made or changed."""
    return (group_access(decode_body(_GroupBody, request.body).group_name, CREATE_UPDATE),)


def new_groups(request: Command) -> Iterable[Access]:
    """Groups that are made or changed."""
    body = decode_body(_GroupsBody, request.body)
    return [group_access(one.group_name, CREATE_UPDATE) for one in body.group_config_list]


def new_topics(request: Command) -> Iterable[Access]:
    """Topics that are made or changed."""
    body = decode_body(_TopicsBody, request.body)
    return [topic_access(one.topic_name, CREATE) for one in body.topic_config_list]


# -- what requests need ----------------------------------------------------------------------------

_RIGHTS: Final = {acl1_accounts.PUB: PUB, acl1_accounts.SUB: SUB, acl1_accounts.ANY: GET}


class Rule(msgspec.Struct, frozen=True):
    """What a request needs of its sender, under each access control."""

    needs: Needs = ADMIN
    """Rights to topics and groups. ACL 1.0 has no others; all else is for administrators."""

    accesses: Callable[[Command], Iterable[Access]] | None = None
    """Rights of ACL 2.0 to what the request names; without them the needs count there too."""

    actions: Actions | None = None
    """Other rights of ACL 2.0 than Pub and Sub to what is needed."""

    is_look: bool = False
    """It changes nothing: where it names nothing ACL 2.0 asks for Get on the cluster, else for
    Update."""

    gives_rights: bool = False
    """It changes who may do what. RocketMQ asks for Update on the cluster, with which a user gives
    himself everything (DefaultAuthorizationContextBuilder, 5.3.3); here it is for super users."""


OPERATE: Final = Rule()
"""For operators."""

LOOK: Final = Rule(is_look=True)
"""For operators; it changes nothing."""


def accesses_of(rule: Rule, request: Command, places: Places, *, cluster: str) -> list[Access]:
    """What a request needs, by what is stored; the cluster when it names nothing."""
    if rule.accesses is not None:
        found = list(rule.accesses(request))
    else:
        needs = needs_of(rule.needs, request, places)
        if not needs:
            return []
        listed = needs.needs if isinstance(needs, Admin) else needs
        found = [_as_access(need, rule.actions) for need in listed]
    # An empty name is nobody's; only who may do everything to the cluster may ask about it.
    if found and all(access.resource.name for access in found):
        return found
    return [cluster_access(cluster, GET if rule.is_look else UPDATE)]


def _as_access(need: Need, actions: Actions | None) -> Access:
    return topic_access(need.resource, actions or _RIGHTS[need.right])
