"""What consumers want."""

import pytest

from escrowmq.client.core.subscription import TOPICS_MAX, parse_subscription, parse_topics
from escrowmq.errors import UsageError


def test_tags_are_told_with_their_hashes() -> None:
    wanted = parse_subscription("T", tags="Aa || card", version=7, wire_topic="ns%T")
    body = wanted.heartbeat_body()
    assert (body.topic, body.sub_string, body.expression_type) == ("ns%T", "Aa || card", "TAG")
    assert (body.tags_set, body.sub_version) == (["Aa", "card"], 7)
    assert body.code_set == sorted([2112, 3046160])
    assert wanted.matches_tag("Aa")
    assert not wanted.matches_tag("BB")  # the same hash


def test_nothing_said_means_everything() -> None:
    for tags in ("", "*"):
        wanted = parse_subscription("T", tags=tags, version=1, wire_topic="T")
        assert wanted.heartbeat_body().sub_string == "*"
        assert wanted.heartbeat_body().code_set == []
        assert wanted.matches_tag("")


def test_conditions_are_the_brokers() -> None:
    wanted = parse_subscription("T", sql="a > 1", version=1, wire_topic="T")
    assert (wanted.heartbeat_body().expression_type, wanted.heartbeat_body().sub_string) == (
        "SQL92",
        "a > 1",
    )
    assert wanted.matches_tag("anything")


def test_what_says_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="give one"):
        parse_subscription("T", tags="a", sql="b > 1", version=1, wire_topic="T")
    with pytest.raises(UsageError, match="names no tag"):
        parse_subscription("T", tags="||", version=1, wire_topic="T")


def test_topics_come_in_three_forms() -> None:
    assert parse_topics("T") == {"T": "*"}
    assert parse_topics(["T", "U"]) == {"T": "*", "U": "*"}
    assert parse_topics({"T": "a", "U": ""}) == {"T": "a", "U": "*"}
    with pytest.raises(UsageError, match="list of names"):
        parse_topics(3)
    with pytest.raises(UsageError, match="1001 topics"):
        parse_topics([str(number) for number in range(TOPICS_MAX + 1)])
    assert len(parse_topics([str(number) for number in range(TOPICS_MAX)])) == TOPICS_MAX
