"""Policies of ACL 2.0: what a user may do, entry by entry.

    {"subject": "User:orders-service",
     "policies": [{"policyType": "Custom",
                   "entries": [{"resource": "Topic:orders*", "actions": ["Pub", "Sub"],
                                "sourceIps": ["10.0.0.0/8"], "decision": "Allow"}]}]}

A resource is `*`, or a type (Cluster, Namespace, Topic, Group) and a name: `Topic:*`, `Topic:T`,
`Topic:prefix*`. Without `sourceIps` an entry applies to all addresses.

Of the entries that match a request, one that denies decides; among those with the same decision,
the narrowest is reported. With `escrowAclAsRocketMQ=true` the order is RocketMQ's."""

from __future__ import annotations

import enum
import functools
import ipaddress
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from escrowmq.base.fixed_limits import AUTH_ENTRIES_MAX, AUTH_NAME_SIZE_MAX, AUTH_SOURCES_MAX
from escrowmq.codec.acl2_bodies import AclInfo, PolicyEntryInfo
from escrowmq.errors import UsageError

E = TypeVar("E", bound=enum.Enum)
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ResourceKind(enum.Enum):
    """The type of a resource."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class PatternKind(enum.Enum):
    """How a resource matches names."""

    ANY = "Any"
    LITERAL = "Literal"
    PREFIXED = "Prefixed"


class Action(enum.Enum):
    """An action on a resource."""

    ALL = "All"
    ANY = "Any"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Decision(enum.Enum):
    """The effect of an entry that matches."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(enum.Enum):
    """The type of a policy; default entries apply if no custom one matches."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


def enum_member(kind: type[E], text: object) -> E | None:
    """Return the member of an enumeration by its name, ignoring case; None if there is none."""
    if not isinstance(text, str):
        return None
    found: dict[str, E] = _members_by_name(kind)
    return found.get(text.lower())


@functools.cache
def _members_by_name(kind: type[E]) -> dict[str, E]:
    return {str(one.value).lower(): one for one in kind}


_RESOURCES_KEPT: Final = 4_096
"""The most parsed resources that are cached. Thousands of users have rights to the same
resources."""


class Resource(msgspec.Struct, frozen=True):
    """What an entry applies to: one resource, all whose names begin with a prefix, all of a type,
    or all."""

    kind: ResourceKind
    name: str = ""
    shape: PatternKind = PatternKind.LITERAL

    def __str__(self) -> str:
        if self.kind is ResourceKind.ANY:
            return "*"
        end = "" if self.shape is PatternKind.LITERAL else "*"
        return f"{self.kind.value}:{self.name}{end}"

    def includes(self, other: Resource) -> bool:
        """Whether this resource, which may be a pattern, includes another one, which must be a
        literal name."""
        if self.kind is ResourceKind.ANY:
            return True
        if self.kind is not other.kind:
            return False
        if self.shape is PatternKind.LITERAL:
            return self.name == other.name
        return self.shape is PatternKind.ANY or other.name.startswith(self.name)


def parse_resource(text: object) -> Resource | None:
    """Parse a resource; None if it is invalid."""
    return _parse_resource_text(text) if isinstance(text, str) and text.strip() else None


@functools.lru_cache(_RESOURCES_KEPT)
def _parse_resource_text(text: str) -> Resource | None:
    if text == "*":
        return Resource(ResourceKind.ANY, "", PatternKind.ANY)
    before, _, name = text.partition(":")
    kind = enum_member(ResourceKind, before)
    if kind is None:
        return None
    if name == "*":
        return Resource(kind, "", PatternKind.ANY)
    if name.endswith("*"):
        return Resource(kind, name.partition("*")[0], PatternKind.PREFIXED)
    return Resource(kind, name)


def rocketmq_misreading(text: object) -> str:
    """Return why RocketMQ would read a resource differently from its text; empty if it would not.
    RocketMQ reads `Topic:*-public*` as all topics, `a*c*` as `a*`, `Any:x` as everything, and a `*`
    inside a name as a character that no topic's name can have."""
    resource = parse_resource(text)
    if resource is None or not isinstance(text, str):
        return ""
    if resource.kind is ResourceKind.ANY:
        is_plain = text.partition(":")[2] in ("", "*")
        return "" if is_plain else f"{text[:128]!r} would mean everything; write '*' for that"
    name = text.partition(":")[2]
    if "*" not in name[:-1]:
        return ""
    return (
        f"{text[:128]!r} would mean {str(resource)[:128]!r}: a '*' is only allowed at the end of a "
        "resource; write an entry for each name or beginning of names"
    )


def covers_more_than_text(resource: Resource, text: object) -> bool:
    """Whether a parsed resource covers more than its text says."""
    return bool(rocketmq_misreading(text)) and (
        resource.kind is ResourceKind.ANY or resource.shape is not PatternKind.LITERAL
    )


class Access(msgspec.Struct, frozen=True):
    """A right that a request needs: one of several actions, on one resource."""

    resource: Resource
    actions: frozenset[Action]


class PolicyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a policy."""

    resource: Resource
    actions: tuple[Action, ...]
    sources: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()
    decision: Decision

    def matches(self, access: Access, host: str) -> bool:
        """Whether the entry applies to an access from an address."""
        return (
            self.resource.includes(access.resource)
            and self._has_action(access)
            and self._is_from(host)
        )

    def _has_action(self, access: Access) -> bool:
        return Action.ANY in access.actions or any(
            action is Action.ALL or action in access.actions for action in self.actions
        )

    def _is_from(self, host: str) -> bool:
        if not self.networks:
            return True
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(
            address.version == network.version and address in network for network in self.networks
        )

    def to_fields(self) -> dict[str, Any]:
        """Return the entry in the form of requests and files."""
        found: dict[str, Any] = {
            "actions": [action.value for action in self.actions],
            "decision": self.decision.value,
            "resource": str(self.resource),
        }
        if self.sources:
            found["sourceIps"] = list(self.sources)
        return found


class Policies(msgspec.Struct, frozen=True):
    """A user's policy entries, in the order in which they were made."""

    custom: tuple[PolicyEntry, ...] = ()
    default: tuple[PolicyEntry, ...] = ()

    def entries_of(self, kind: PolicyType) -> tuple[PolicyEntry, ...]:
        """Return the entries of one type."""
        return self.custom if kind is PolicyType.CUSTOM else self.default

    def with_entries(self, kind: PolicyType, entries: Iterable[PolicyEntry]) -> Policies:
        """Return these policies with entries added; they replace those for the same resources."""
        found = {entry.resource: entry for entry in self.entries_of(kind)}
        found.update((entry.resource, entry) for entry in entries)
        if len(found) > AUTH_ENTRIES_MAX:
            raise UsageError(
                f"{len(found)} entries of one user; {AUTH_ENTRIES_MAX} are allowed, join some by "
                "prefixes"
            )
        return self._with_type_replaced(kind, tuple(found.values()))

    def without_entry(self, kind: PolicyType, resource: Resource) -> Policies:
        """Return these policies without the entry for a resource."""
        return self._with_type_replaced(
            kind, tuple(e for e in self.entries_of(kind) if e.resource != resource)
        )

    def _with_type_replaced(self, kind: PolicyType, entries: tuple[PolicyEntry, ...]) -> Policies:
        if kind is PolicyType.CUSTOM:
            return Policies(entries, self.default)
        return Policies(self.custom, entries)

    def matching_entries(
        self, access: Access, host: str, *, as_rocketmq: bool
    ) -> list[PolicyEntry]:
        """Return the entries that match a request; the first one decides."""
        for entries in (self.custom, self.default):
            found = [entry for entry in entries if entry.matches(access, host)]
            if found:
                return sort_as_rocketmq(found) if as_rocketmq else sorted(found, key=_entry_rank)
        return []

    def to_fields(self) -> list[dict[str, Any]]:
        """Return the policies in the form of requests and files."""
        return [
            {
                "entries": [entry.to_fields() for entry in self.entries_of(kind)],
                "policyType": kind.value,
            }
            for kind in PolicyType
            if self.entries_of(kind)
        ]


# -- which entry counts --------------------------------------------------------------------------


_WIDTHS: Final = {PatternKind.LITERAL: 0, PatternKind.PREFIXED: 1, PatternKind.ANY: 2}


def _entry_rank(entry: PolicyEntry) -> tuple[bool, bool, int, int]:
    """Sort key of entries: denials before permissions, then narrow ones before wide ones. So
    everything that RocketMQ refuses is refused here too, in whatever order it compares."""
    resource = entry.resource
    return (
        entry.decision is not Decision.DENY,
        resource.kind is ResourceKind.ANY,
        _WIDTHS[resource.shape],
        -len(resource.name),
    )


def _compare_as_rocketmq(one: PolicyEntry, two: PolicyEntry) -> int:
    """Compare entries like RocketMQ 5.3.3 (AclAuthorizationHandler.comparePolicyEntries). Its order
    is inconsistent: of a literal and a prefixed entry, each comes before the other. So the result
    depends on the sorting algorithm."""
    left, right = one.resource, two.resource
    if left.kind is not right.kind:
        if right.kind is ResourceKind.ANY:
            return -1
        if left.kind is ResourceKind.ANY:
            return 1
    elif left.shape is right.shape:
        if left.shape is PatternKind.PREFIXED and len(left.name) != len(right.name):
            return -1 if len(left.name) < len(right.name) else 1
    elif left.shape is not PatternKind.ANY:
        return -1
    if one.decision is Decision.DENY:
        return 1
    return -1 if two.decision is Decision.DENY else 0


def sort_as_rocketmq(entries: list[PolicyEntry]) -> list[PolicyEntry]:
    """Sort entries by the same steps as Java's `List.sort` (TimSort's binary insertion after a
    first run; up to 31 elements). RocketMQ's comparison is inconsistent, so other steps would give
    another order."""
    found = list(entries)
    if len(found) < 2:
        return found
    end = 2
    if _compare_as_rocketmq(found[1], found[0]) < 0:
        while end < len(found) and _compare_as_rocketmq(found[end], found[end - 1]) < 0:
            end += 1
        found[:end] = found[:end][::-1]
    else:
        while end < len(found) and _compare_as_rocketmq(found[end], found[end - 1]) >= 0:
            end += 1
    for at in range(end, len(found)):
        pivot = found.pop(at)
        low, high = 0, at
        while low < high:
            middle = (low + high) // 2
            if _compare_as_rocketmq(pivot, found[middle]) < 0:
                high = middle
            else:
                low = middle + 1
        found.insert(low, pivot)
    return found


# -- what requests and files say -----------------------------------------------------------------


def parse_policies(info: AclInfo) -> list[tuple[PolicyType, tuple[PolicyEntry, ...]]]:
    """Parse the policies of a request or a file; raises UsageError, with RocketMQ's text."""
    if not info.policies:
        raise UsageError("The policies is empty.")
    found = []
    for policy in info.policies:
        kind = enum_member(PolicyType, policy.policy_type) or PolicyType.CUSTOM
        if policy.entries:
            found.append((kind, tuple(_parse_entry(entry) for entry in policy.entries)))
    if not found:
        raise UsageError("The policies is empty.")
    return found


def _parse_entry(info: PolicyEntryInfo) -> PolicyEntry:
    resource = parse_resource(info.resource)
    if resource is None:
        raise UsageError("The resource is null.")
    if len(resource.name) > AUTH_NAME_SIZE_MAX:
        raise UsageError(
            f"a resource's name has {len(resource.name)} characters; {AUTH_NAME_SIZE_MAX} are "
            "allowed"
        )
    actions = tuple(
        a for text in info.actions or () if (a := enum_member(Action, text)) is not None
    )
    if not actions:
        raise UsageError("The actions is empty.")
    if Action.ANY in actions:
        raise UsageError("The actions can not be Any.")
    sources = tuple(info.source_ips or ())
    networks = _parse_networks(sources)
    decision = enum_member(Decision, info.decision)
    if decision is None:
        raise UsageError("The decision is null or illegal.")
    return PolicyEntry(
        resource=resource, actions=actions, sources=sources, networks=networks, decision=decision
    )


def _parse_networks(sources: tuple[str, ...]) -> tuple[Network, ...]:
    if len(sources) > AUTH_SOURCES_MAX:
        raise UsageError(f"{len(sources)} source ips; {AUTH_SOURCES_MAX} are allowed, use a CIDR")
    found = []
    for source in sources:
        if not source.strip():
            raise UsageError("The source ip is empty.")
        try:
            found.append(ipaddress.ip_network(source, strict=False))
        except ValueError as error:
            raise UsageError("The source ip is invalid.") from error
    return tuple(found)
