"""What consumers want."""

import pytest

from escrowmq.client.core.subscription import TOPICS_MAX, check_topics, subscription
from escrowmq.errors import UsageError


def test_tags_are_told_with_their_hashes() -> None:
    wanted = subscription("T", tags="Aa || card", version=7, wire_topic="ns%T")
    body = wanted.body()
    assert (body.topic, body.sub_string, body.expression_type) == ("ns%T", "Aa || card", "TAG")
    assert (body.tags_set, body.sub_version) == (["Aa", "card"], 7)
    assert body.code_set == sorted([2112, 3046160])
    assert wanted.wants("Aa")
    assert not wanted.wants("BB")  # the same hash


def test_nothing_said_means_everything() -> None:
    for tags in ("", "*"):
        wanted = subscription("T", tags=tags, version=1, wire_topic="T")
        assert wanted.body().sub_string == "*"
        assert wanted.body().code_set == []
        assert wanted.wants("")


def test_conditions_are_the_brokers() -> None:
    wanted = subscription("T", sql="a > 1", version=1, wire_topic="T")
    assert (wanted.body().expression_type, wanted.body().sub_string) == ("SQL92", "a > 1")
    assert wanted.wants("anything")


def test_what_says_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="give one"):
        subscription("T", tags="a", sql="b > 1", version=1, wire_topic="T")
    with pytest.raises(UsageError, match="names no tag"):
        subscription("T", tags="||", version=1, wire_topic="T")


def test_topics_come_in_three_forms() -> None:
    assert check_topics("T") == {"T": "*"}
    assert check_topics(["T", "U"]) == {"T": "*", "U": "*"}
    assert check_topics({"T": "a", "U": ""}) == {"T": "a", "U": "*"}
    with pytest.raises(UsageError, match="list of names"):
        check_topics(3)
    with pytest.raises(UsageError, match="1001 topics"):
        check_topics([str(number) for number in range(TOPICS_MAX + 1)])
    assert len(check_topics([str(number) for number in range(TOPICS_MAX)])) == TOPICS_MAX
