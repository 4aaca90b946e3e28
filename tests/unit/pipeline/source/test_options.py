"""The source's options as a whole."""

from __future__ import annotations

import pytest

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import UsageError
from escrowmq.pipeline.source.offset_options import EARLIEST, LATEST
from escrowmq.pipeline.source.options import GROUP, SourceOptions, parse_source_options

LEAST = {"nameServer": "h:1", "subscribe": "t"}


def parsed(
    options: dict[str, str] | None = None, *, is_stream: bool | None = False
) -> SourceOptions:
    return parse_source_options(LEAST | (options or {}), is_stream=is_stream)


def test_defaults() -> None:
    batch, stream = parsed(), parsed(is_stream=True)
    assert (batch.start.word, stream.start.word) == (EARLIEST, LATEST)
    assert batch.pulling.group == GROUP
    assert batch.pulling.fails_on_loss
    assert not batch.is_filtered
    assert batch.properties == "map"
    assert batch.limits.delay_ms == 900_000


@pytest.mark.parametrize(
    "options",
    [
        {"topic": "t", "namesrvAddr": "h:1", "maxMessagesPerTrigger": "5", "subExpression": "a"},
        {"SUBSCRIBE": "t", "kafka.bootstrap.servers": "h:1", "maxOffsetsPerTrigger": "5",
         "tags": "a"},
    ],
)  # fmt: skip
def test_other_names(options: dict[str, str]) -> None:
    found = parse_source_options(options, is_stream=True)
    assert found.topics == ("t",)
    assert found.limits.rows_max == 5
    assert found.is_filtered


def test_properties_are_left_out_in_two_ways() -> None:
    assert parsed({"properties": "none"}).properties == "none"
    assert parsed({"includeProperties": "false"}).properties == "none"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribePattern": ".*"}, "2 of subscribe, subscribePattern and assign are given"),
        ({"subscribe": ""}, "0 of subscribe, subscribePattern and assign are given"),
        ({"subscribe": "", "subscribePattern": "("}, "is not a regular expression"),
        ({"subscribe": "RMQ_SYS_TRANS_HALF_TOPIC"}, "set includeSystemTopics=true"),
        ({"subscribe": "a b"}, "has invalid characters"),
        ({"tags": "||"}, "names no tag"),
        ({"tags": "a", "sqlFilter": "b > 1"}, "give one of them"),
        ({"minPartitions": "5", "maxPartitions": "2"}, "is more than"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "2"}, "is more than"),
        ({"path": "/x"}, "has no meaning here"),
        ({"pullsInFlight": "0"}, "from 1 to 64"),
        ({"readFrom": "both"}, "one of master, slave"),
        ({"group": "a b"}, "has invalid characters"),
        ({"colour": "red"}, "there is no option 'colour' here"),
    ],
)
def test_what_is_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        parsed(options)


def test_times_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(UsageError, match="startingTimestamp=9 is later than endingTimestamp=5"):
        parsed({"startingTimestamp": "9", "endingTimestamp": "5"})
    parsed({"startingTimestamp": "5", "endingTimestamp": "5"})


def test_what_is_for_streams_is_told_to_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    parsed({"maxOffsetsPerTrigger": "5"}, is_stream=True)
    assert not caplog.text
    parsed({"maxOffsetsPerTrigger": "5"}, is_stream=False)
    assert "maxOffsetsPerTrigger is for streams and has no effect on spark.read" in caplog.text


def test_which_queues_are_wanted() -> None:
    queue = MessageQueue("orders", "b", 1)
    for options, expected in (
        ({"subscribe": "orders,x"}, True),
        ({"subscribe": "x"}, False),
        ({"subscribe": "", "subscribePattern": "ord.*"}, True),
        ({"subscribe": "", "subscribePattern": "ord"}, False),
        ({"subscribe": "", "assign": '{"orders": {"b": [1]}}'}, True),
        ({"subscribe": "", "assign": '{"orders": {"b": [0]}}'}, False),
    ):
        assert parsed(options).selects_queue(queue) is expected, options
    left = parsed({"subscribe": "orders,x"}).without_topics({"x"})
    assert left is not None
    assert left.topics == ("orders",)
    assert parsed({"subscribe": "x"}).without_topics({"x"}) is None


def test_what_a_stream_cannot_have() -> None:
    with pytest.raises(UsageError, match="a stream has no end"):
        parsed({"endingOffsets": "latest"}, is_stream=True)
    with pytest.raises(UsageError, match=r"storePath is for spark\.read"):
        parse_source_options({"storePath": "/x"}, is_stream=True)
    parsed({"endingOffsets": "latest"}, is_stream=None)


@pytest.mark.parametrize(
    "options",
    [
        {"sqlFilter": "a > 1"},
        {"assign": '{"t": {"b": [0]}}'},
        {"startingOffsets": '{"t": {"b": {"0": 1}}}'},
        {"endingOffsetsByTimestamp": '{"t": 1}'},
    ],
)
def test_what_files_cannot_have(options: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="storePath"):
        parse_source_options({"storePath": "/x", **options}, is_stream=False)
    parse_source_options({"storePath": "/x", "startingTimestamp": "5"}, is_stream=False)


def test_a_brokers_own_topic_can_be_read_when_it_is_allowed() -> None:
    given = {"nameServer": "h:1", "subscribe": "RMQ_SYS_TRANS_HALF_TOPIC"}
    with pytest.raises(UsageError, match="includeSystemTopics=true"):
        parse_source_options(given, is_stream=False)
    found = parse_source_options({**given, "includeSystemTopics": "true"}, is_stream=False)
    assert found.subscription(found.topics[0]).topic == "RMQ_SYS_TRANS_HALF_TOPIC"
