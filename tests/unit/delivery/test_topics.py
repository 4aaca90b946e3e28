"""Topics that a broker makes for itself."""

from escrowmq.base.message import Topic
from escrowmq.base.settings import BrokerSettings
from escrowmq.delivery.topics import TopicTable


def made(settings: BrokerSettings) -> TopicTable:
    topics = TopicTable(settings)
    topics.create_system_topics(1)
    return topics


def test_the_topic_of_traces_is_made_when_asked_for_and_under_the_name_given() -> None:
    assert made(BrokerSettings()).get(Topic.TRACE) is None
    assert made(BrokerSettings(has_trace_topic=True)).get(Topic.TRACE) is not None
    named = made(BrokerSettings(has_trace_topic=True, trace_topic="audit"))
    found = named.get("audit")
    assert found is not None
    assert (found.write_queue_nums, found.perm) == (1, 6)
    assert named.get(Topic.TRACE) is None
    assert named.is_system("audit")
