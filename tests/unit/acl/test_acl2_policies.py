from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.acl.acl2_policies import (
    Access,
    Action,
    Decision,
    PatternKind,
    Policies,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceKind,
    enum_member,
    parse_policies,
    parse_resource,
    rocketmq_misreading,
    sort_as_rocketmq,
)
from escrowmq.base import fixed_limits
from escrowmq.codec.acl2_bodies import AclInfo
from escrowmq.errors import UsageError

HERE = "127.0.0.1"


def info(*entries: dict[str, Any], kind: str | None = None) -> AclInfo:
    return msgspec.convert({"policies": [{"policyType": kind, "entries": list(entries)}]}, AclInfo)


def entry(resource: str, decision: str = "Allow", *actions: str, **more: Any) -> PolicyEntry:
    made = {"resource": resource, "decision": decision, "actions": list(actions or ("Pub",))}
    ((_, (found,)),) = parse_policies(info(made | more))
    return found


def pub(topic: str) -> Access:
    return Access(Resource(ResourceKind.TOPIC, topic), frozenset({Action.PUB}))


@pytest.mark.parametrize(
    ("text", "kind", "name", "shape"),
    [
        ("*", ResourceKind.ANY, "", PatternKind.ANY),
        ("Topic:*", ResourceKind.TOPIC, "", PatternKind.ANY),
        ("topic:T", ResourceKind.TOPIC, "T", PatternKind.LITERAL),
        ("Group:g*", ResourceKind.GROUP, "g", PatternKind.PREFIXED),
        ("Topic:a*b*", ResourceKind.TOPIC, "a", PatternKind.PREFIXED),
        ("Topic:a*b", ResourceKind.TOPIC, "a*b", PatternKind.LITERAL),
        ("Cluster:c:d", ResourceKind.CLUSTER, "c:d", PatternKind.LITERAL),
        ("Any:x", ResourceKind.ANY, "x", PatternKind.LITERAL),
    ],
)
def test_resources_are_read_as_by_the_peer(
    text: str, kind: ResourceKind, name: str, shape: PatternKind
) -> None:
    assert parse_resource(text) == Resource(kind, name, shape)


@pytest.mark.parametrize("text", [None, "", "  ", "Queue:q", "T", "Topics:T", 7])
def test_what_is_no_resource_is_none(text: object) -> None:
    assert parse_resource(text) is None


@pytest.mark.parametrize("text", ["*", "Topic:*", "Topic:T", "Group:g*", "Namespace:n"])
def test_a_resource_is_written_as_it_was_read(text: str) -> None:
    assert str(parse_resource(text)) == text


@pytest.mark.parametrize(
    ("resource", "is_meant"),
    [("*", True), ("Topic:*", True), ("Topic:orders", True), ("Topic:ord*", True),
     ("Topic:orders-2", False), ("Topic:order", False), ("Group:orders", False),
     ("Group:*", False), ("Topic:orders2*", False)],
)  # fmt: skip
def test_entries_match_the_resources_that_they_name(resource: str, is_meant: bool) -> None:
    assert entry(resource).matches(pub("orders"), HERE) is is_meant


def test_one_of_the_actions_is_enough_and_all_is_every_one() -> None:
    need = Access(Resource(ResourceKind.TOPIC, "T"), frozenset({Action.SUB, Action.GET}))
    assert entry("Topic:T", "Allow", "Get").matches(need, HERE)
    assert entry("Topic:T", "Allow", "All").matches(need, HERE)
    assert not entry("Topic:T", "Allow", "Pub", "List").matches(need, HERE)
    anything = Access(Resource(ResourceKind.TOPIC, "T"), frozenset({Action.ANY}))
    assert entry("Topic:T", "Allow", "List").matches(anything, HERE)


@pytest.mark.parametrize(
    ("sources", "host", "is_meant"),
    [([], "anything", True), (["10.0.0.1"], "10.0.0.1", True), (["10.0.0.1"], "10.0.0.2", False),
     (["10.0.0.7/24"], "10.0.0.200", True), (["10.0.0.0/8", "::1"], "::1", True),
     (["::1"], "0:0:0:0:0:0:0:1", True), (["10.0.0.0/8"], "::ffff:10.1.2.3", True),
     (["0.0.0.0/0"], "::1", False), (["10.0.0.1"], "unix", False), (["fe80::/10"], "fe80::1%2",
     True)],
)  # fmt: skip
def test_sources_are_addresses_and_networks(sources: list[str], host: str, is_meant: bool) -> None:
    assert entry("*", sourceIps=sources).matches(pub("T"), host) is is_meant


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"resource": "Queue:q"}, "The resource is null."),
        ({"resource": "Topic:" + "x" * 256}, "256 characters"),
        ({"actions": ["Jump"]}, "The actions is empty."),
        ({"actions": None}, "The actions is empty."),
        ({"actions": ["Pub", "any"]}, "The actions can not be Any."),
        ({"decision": "Perhaps"}, "The decision is null or illegal."),
        ({"decision": None}, "The decision is null or illegal."),
        ({"sourceIps": [" "]}, "The source ip is empty."),
        ({"sourceIps": ["localhost"]}, "The source ip is invalid."),
        ({"sourceIps": ["10.0.0.0/33"]}, "The source ip is invalid."),
        ({"sourceIps": ["10.0.0.1"] * 65}, "65 source ips"),
    ],
)
def test_bad_entries_are_refused_in_the_words_of_the_peer(bad: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_policies(info({"resource": "Topic:T", "actions": ["Pub"], "decision": "Allow"} | bad))


def test_policies_without_entries_are_refused() -> None:
    for empty in (AclInfo(), info(), msgspec.convert({"policies": []}, AclInfo)):
        with pytest.raises(UsageError, match="The policies is empty"):
            parse_policies(empty)


def test_a_second_entry_about_a_resource_takes_the_place_of_the_first() -> None:
    first, second = entry("Topic:T", "Allow"), entry("Topic:T", "Deny", "Sub")
    found = Policies().with_entries(PolicyType.CUSTOM, [first, entry("Topic:*")])
    found = found.with_entries(PolicyType.CUSTOM, [second])
    assert [str(each.resource) for each in found.custom] == ["Topic:T", "Topic:*"]
    assert found.custom[0] is second
    gone = found.without_entry(PolicyType.CUSTOM, Resource(ResourceKind.TOPIC, "T"))
    assert [str(each.resource) for each in gone.custom] == ["Topic:*"]
    assert gone.without_entry(PolicyType.DEFAULT, Resource(ResourceKind.TOPIC, "T")) == gone


def test_the_number_of_entries_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("escrowmq.acl.acl2_policies.AUTH_ENTRIES_MAX", 2)
    assert fixed_limits.AUTH_ENTRIES_MAX > 2
    with pytest.raises(UsageError, match="join some by prefixes"):
        Policies().with_entries(PolicyType.CUSTOM, [entry(f"Topic:{name}") for name in "abc"])


def test_default_entries_count_when_no_custom_one_matches() -> None:
    found = Policies(
        custom=(entry("Topic:other"), entry("Topic:T", "Allow", "Sub")),
        default=(entry("Topic:*", "Deny"),),
    )
    matching = found.matching_entries(pub("T"), HERE, as_rocketmq=False)
    assert [each.decision for each in matching] == [Decision.DENY]
    other = Access(Resource(ResourceKind.GROUP, "g"), frozenset({Action.SUB}))
    assert found.matching_entries(other, HERE, as_rocketmq=False) == []


@pytest.mark.parametrize(
    ("first", "second", "wins"),
    [
        # Measured at a broker 5.3.3.
        ("Topic:A* Allow", "Topic:AB* Deny", "Topic:A*"),
        ("Topic:AB* Deny", "Topic:A* Allow", "Topic:A*"),
        ("Topic:A* Deny", "Topic:AB* Allow", "Topic:A*"),
        ("Topic:ABC Allow", "Topic:A* Deny", "Topic:A*"),
        ("Topic:A* Deny", "Topic:ABC Allow", "Topic:ABC"),
        ("* Deny", "Topic:* Allow", "Topic:*"),
        ("Topic:* Deny", "* Allow", "Topic:*"),
    ],
)
def test_as_the_peer_the_entry_that_decides_is_that_of_the_peer(
    first: str, second: str, wins: str
) -> None:
    entries = [entry(*text.split()) for text in (first, second)]
    found = Policies(custom=tuple(entries)).matching_entries(pub("ABC"), HERE, as_rocketmq=True)
    assert str(found[0].resource) == wins


@pytest.mark.parametrize(
    ("entries", "wins"),
    [
        ("Topic:A* Allow, Topic:AB* Deny", "Topic:AB*"),
        ("Topic:AB* Allow, Topic:A* Deny", "Topic:A*"),
        ("Topic:ABC Deny, Topic:A* Allow", "Topic:ABC"),
        ("Topic:A* Allow, Topic:ABC Deny", "Topic:ABC"),
        ("* Deny, Topic:ABC Allow", "*"),
        ("Topic:A* Allow, Topic:AB* Allow, Topic:* Allow", "Topic:AB*"),
        ("* Allow, Topic:ABC Allow, Topic:AB* Allow, Topic:* Allow", "Topic:ABC"),
        ("Topic:* Deny, * Deny, Topic:AB* Deny, Topic:A* Deny", "Topic:AB*"),
    ],
)
def test_what_denies_decides_and_then_what_is_narrow(entries: str, wins: str) -> None:
    every = [entry(*text.split()) for text in entries.split(", ")]
    for order in itertools.permutations(every):
        found = Policies(custom=tuple(order)).matching_entries(pub("ABC"), HERE, as_rocketmq=False)
        assert str(found[0].resource) == wins


@given(st.data())
def test_nothing_is_open_that_the_peer_refuses(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(["A*", "AB*", "ABC", "*"]), unique=True))
    decisions = st.sampled_from(["Allow", "Deny"])
    found = Policies(custom=tuple(entry(f"Topic:{n}", data.draw(decisions)) for n in names))
    theirs = found.matching_entries(pub("ABC"), HERE, as_rocketmq=True)
    ours = found.matching_entries(pub("ABC"), HERE, as_rocketmq=False)
    assert bool(ours) == bool(theirs)
    if ours and ours[0].decision is Decision.ALLOW:
        assert theirs[0].decision is Decision.ALLOW


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("Topic:*-public*", "'Topic:*'"), ("Topic:a*c*", "'Topic:a*'"), ("Topic:a**", "'Topic:a*'"),
        ("Topic:a*c", "'Topic:a*c'"), ("Group:**", "'Group:*'"), ("Any:x", "everything"),
        ("any:x*", "everything"),
    ],
)  # fmt: skip
def test_a_pattern_that_would_mean_something_else_is_told(text: str, means: str) -> None:
    assert f"would mean {means}" in rocketmq_misreading(text)


@pytest.mark.parametrize("text", ["*", "Any:*", "Topic:*", "Topic:a*", "topic:a", "Queue:q", None])
def test_a_pattern_that_means_what_it_says_is_not(text: str | None) -> None:
    assert rocketmq_misreading(text) == ""


@given(st.lists(st.sampled_from(["A*", "AB*", "ABC*", "ABC", "*"]), max_size=12), st.data())
def test_sorting_loses_nothing(names: list[str], data: st.DataObject) -> None:
    decisions = st.sampled_from(["Allow", "Deny"])
    kinds = st.sampled_from(["Topic", "Group", "Any"])
    entries = [entry(f"{data.draw(kinds)}:{name}", data.draw(decisions)) for name in names]
    assert sorted(map(id, sort_as_rocketmq(entries))) == sorted(map(id, entries))


def test_policies_are_told_as_they_are_asked_for() -> None:
    one = entry("Topic:T", "deny", "pub", "SUB", sourceIps=["10.0.0.0/8"])
    found = Policies(custom=(one,))
    assert found.to_fields() == [
        {
            "entries": [
                {
                    "actions": ["Pub", "Sub"],
                    "decision": "Deny",
                    "resource": "Topic:T",
                    "sourceIps": ["10.0.0.0/8"],
                }
            ],
            "policyType": "Custom",
        }
    ]
    again = msgspec.convert({"policies": found.to_fields()}, AclInfo)
    assert parse_policies(again) == [(PolicyType.CUSTOM, (one,))]


def test_names_are_found_in_any_case() -> None:
    assert enum_member(Decision, "ALLOW") is Decision.ALLOW
    assert enum_member(Decision, None) is None
    assert enum_member(Action, "no") is None
