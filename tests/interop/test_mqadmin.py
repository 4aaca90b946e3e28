"""mqadmin, the operator's tool: each sub-command prints what it prints against the real broker."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from .drivers import Admin, Consumer, JavaDriver, Producer, unique
from .process import until
from .servers import Server
from .values import Sent

pytestmark = pytest.mark.parametrize(
    "java", ["java-5.3.3", pytest.param("java-5.5.0", marks=pytest.mark.long)], indirect=True
)


@dataclass
class Desk:
    """A topic with four messages, a group that has consumed them, and mqadmin at hand."""

    server: Server
    java: JavaDriver
    topic: str
    producer: Producer
    consumer: Consumer
    sent: list[Sent]

    def run(self, command: str, *arguments: str) -> str:
        return self.java.mqadmin(command, "-n", self.server.nameserver, *arguments)


@pytest.fixture
def desk(server: Server, java: JavaDriver, topic: str) -> Desk:
    producer = java.producer(server.nameserver)
    consumer = java.consumer(server.nameserver, topic)
    sent = [producer.send(topic, f"body {n}", keys=f"key-{n}", queueId=n) for n in range(4)]
    consumer.received(4)
    return Desk(server, java, topic, producer, consumer, sent)


def test_topic_commands(desk: Desk) -> None:
    assert desk.topic in desk.run("topicList").split()
    route = desk.run("topicRoute", "-t", desk.topic)
    assert desk.server.broker in route
    assert re.search(r'"readQueueNums"\s*:\s*4', route)
    status = desk.run("topicStatus", "-t", desk.topic)
    rows = re.findall(rf"^{desk.server.broker_name}\s+(\d)\s+(\d+)\s+(\d+)", status, re.MULTILINE)
    assert rows == [(str(n), "0", "1") for n in range(4)]
    assert "DefaultCluster" in desk.run("topicClusterList", "-t", desk.topic)
    name = unique("made")
    made = desk.run("updateTopic", "-b", desk.server.broker, "-t", name, "-r", "3", "-w", "3")
    assert "success" in made
    assert re.search(r'"readQueueNums"\s*:\s*3', desk.run("topicRoute", "-t", name))
    assert "success" in desk.run("updateTopicPerm", "-b", desk.server.broker, "-t", name, "-p", "4")
    assert re.search(r'"perm"\s*:\s*4', desk.run("topicRoute", "-t", name))
    assert "success" in desk.run("deleteTopic", "-c", "DefaultCluster", "-t", name)
    until("it is gone", lambda: name not in desk.run("topicList").split())


def test_cluster_commands(desk: Desk) -> None:
    clusters = desk.run("clusterList")
    assert re.search(rf"DefaultCluster\s+{desk.server.broker_name}\s+0\s+", clusters)
    assert desk.server.broker in clusters
    status = desk.run("brokerStatus", "-b", desk.server.broker)
    for key in ("bootTimestamp", "putTps", "commitLogMaxOffset", "msgPutTotalTodayNow"):
        assert re.search(rf"^{key}\s*:\s*\S+", status, re.MULTILINE), key
    config = desk.run("getBrokerConfig", "-b", desk.server.broker)
    assert re.search(r"^\s*brokerName\s*=\s*broker-a", config, re.MULTILINE)
    for wanted in ("5000", "300000"):
        changed = desk.run(
            *("updateBrokerConfig", "-b", desk.server.broker),
            *("-k", "maxPopPollingSize", "-v", wanted),
        )
        assert "success" in changed
        config = desk.run("getBrokerConfig", "-b", desk.server.broker)
        assert re.search(rf"^\s*maxPopPollingSize\s*=\s*{wanted}", config, re.MULTILINE)
    assert "success" in desk.run("cleanUnusedTopic", "-b", desk.server.broker)
    assert "success" in desk.run("cleanExpiredCQ", "-b", desk.server.broker)


def test_group_commands(desk: Desk) -> None:
    group = desk.consumer.group

    def progress() -> bool:
        text = desk.run("consumerProgress", "-g", group)
        row = rf"^{re.escape(desk.topic)}\s+\S+\s+(\d)\s+(\d+)\s+(\d+)"
        rows = re.findall(row, text, re.MULTILINE)
        return rows == [(str(n), "1", "1") for n in range(4)]

    until("all is consumed", progress)
    connection = desk.run("consumerConnection", "-g", group)
    assert desk.consumer.client_id in connection
    assert re.search(r"ConsumeType: CONSUME_PASSIVELY", connection)
    assert group in desk.run("consumerProgress")
    producing = desk.run("producerConnection", "-g", desk.producer.group, "-t", desk.topic)
    assert desk.producer.client_id in producing
    name = unique("group")
    made = desk.run("updateSubGroup", "-b", desk.server.broker, "-g", name, "-r", "7")
    assert "success" in made
    config = desk.run("getConsumerConfig", "-g", name)
    assert re.search(r"retryMaxTimes\s*=\s*7", config)
    assert "success" in desk.run("deleteSubGroup", "-b", desk.server.broker, "-g", name)


def test_message_commands(desk: Desk) -> None:
    sent = desk.sent[1]
    assert sent.offset_msg_id
    by_id = desk.run("queryMsgById", "-i", sent.offset_msg_id, "-t", desk.topic)
    assert re.search(r"Keys:\s+\[?key-1", by_id)

    def found(*arguments: str) -> Callable[[], bool]:
        return lambda: sent.msg_id in desk.run(*arguments, "-t", desk.topic)

    until("by key", found("queryMsgByKey", "-k", "key-1"))
    until("by unique key", found("queryMsgByUniqueKey", "-i", sent.msg_id))
    by_offset = desk.run(
        *("queryMsgByOffset", "-t", desk.topic, "-b", desk.server.broker_name),
        *("-i", str(sent.queue_id), "-o", "0"),
    )
    assert "key-1" in by_offset
    printed = desk.run("printMsg", "-t", desk.topic, "-d", "true")
    assert all(f"body {n}" in printed for n in range(4))
    queue = desk.run("queryCq", "-t", desk.topic, "-q", "0", "-i", "0", "-c", "10")
    assert re.search(r"physicOffset|offset", queue)
    sending = desk.run("sendMessage", "-t", desk.topic, "-p", "by hand", "-k", "hand")
    assert "SEND_OK" in sending
    assert "by hand" in {one.text for one in desk.consumer.received(5)}


def test_offset_commands(desk: Desk) -> None:
    group = desk.consumer.group
    until("offsets", lambda: "1" in desk.run("consumerProgress", "-g", group))
    reset = desk.run("resetOffsetByTime", "-g", group, "-t", desk.topic, "-s", "0")
    assert desk.server.broker_name in reset
    again = desk.consumer.received(8)
    assert sorted(one.text for one in again[4:8]) == [f"body {n}" for n in range(4)]
    target = unique("CG")
    assert "success" in desk.run("updateSubGroup", "-b", desk.server.broker, "-g", target)
    assert "success" in desk.run("cloneGroupOffset", "-s", group, "-d", target, "-t", desk.topic)


def test_statistics(desk: Desk) -> None:
    assert desk.topic in desk.run("statsAll", "-t", desk.topic)
    assert "#Topic" in desk.run("brokerConsumeStats", "-b", desk.server.broker)


def test_admin_library(desk: Desk) -> None:
    admin: Admin = desk.java.admin(desk.server.nameserver)
    stats = admin.call("examineTopicStats", desk.topic)["offsetTable"]
    queue = f"{desk.topic}@{desk.server.broker_name}@2"
    assert (stats[queue]["minOffset"], stats[queue]["maxOffset"]) == (0, 1)
    consumed = until(
        "offsets",
        lambda: all_consumed(admin.call("examineConsumeStats", desk.consumer.group), desk.topic),
    )
    assert consumed == 4
    connection = admin.call("examineConsumerConnectionInfo", desk.consumer.group)
    assert [one["clientId"] for one in connection["connectionSet"]] == [desk.consumer.client_id]
    assert set(connection["subscriptionTable"]) == {desk.topic, f"%RETRY%{desk.consumer.group}"}
    running = admin.call(
        "getConsumerRunningInfo", desk.consumer.group, desk.consumer.client_id, False
    )
    assert len([name for name in running["mqTable"] if name.startswith(desk.topic)]) == 4
    groups = admin.call("queryTopicConsumeByWho", desk.topic)["groupList"]
    assert desk.consumer.group in groups
    assert desk.topic in admin.call("fetchAllTopicList")["topicList"]
    cluster = admin.call("examineBrokerClusterInfo")
    assert cluster["clusterAddrTable"] == {"DefaultCluster": [desk.server.broker_name]}
    direct = admin.call(
        "consumeMessageDirectly",
        *(desk.consumer.group, desk.consumer.client_id, desk.topic, desk.sent[0].offset_msg_id),
    )
    assert direct["consumeResult"] == "CR_SUCCESS"
    admin.close()


def all_consumed(stats: dict[str, dict[str, dict[str, int]]], topic: str) -> int:
    rows = [row for name, row in stats["offsetTable"].items() if name.startswith(topic)]
    return sum(row["consumerOffset"] for row in rows if row["consumerOffset"] == 1) // 4 * 4
