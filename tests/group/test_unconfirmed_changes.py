"""Changes of tables at a master that was replaced before its copies had them: they were refused,
and never come into force."""

from __future__ import annotations

import pytest

from escrowmq.base.codes import Request, Response

from .test_deleted_topics import ask, bodies, delete, make, send
from .test_deleted_topics import formed as formed_pair
from .test_failover import MADE, formed, sent, store_of

CHANGES = "config/brokerChanges.json"


def test_a_table_that_only_a_replaced_master_has_is_removed_there() -> None:
    world, master = formed()
    sent(world, master, b"one")
    world.isolate(master.name)
    world.without_authority.add(master.name)
    assert master.broker is not None
    operator = master.broker.connect()
    wish = b"waitTimeMillsInSendQueue=777\n"
    refused = operator.begin(Request.UPDATE_BROKER_CONFIG, {}, wish)
    new = world.until(lambda: world.serving is not master and world.serving)
    assert not refused or refused.now.code != Response.SUCCESS
    for _ in range(2):  # the second change leaves a former version of the file behind
        operator.begin(Request.UPDATE_BROKER_CONFIG, {}, wish.replace(b"777", b"778"))
    assert master.disk.read(CHANGES)
    world.mend()
    world.without_authority.clear()
    world.until(world.are_in_sync)
    assert master.disk.read(CHANGES) is None
    assert master.disk.read(f"{CHANGES}.bak") is None
    new.kill()
    world.until(lambda: world.serving)


@pytest.mark.parametrize("how", ["once", "again", "right before a kill"])
def test_a_topic_that_a_replaced_master_has_deleted_alone_is_not_lost(how: str) -> None:
    """Its deletion was never acknowledged, and its queues were gone when it led again. If it is
    killed in the middle of it, its log has nothing that would have to be cut off."""
    world, master, copy = formed_pair()
    make(world, master, 2)
    send(world, master, b"old", 0)
    delete(world, master)
    make(world, master, 2)
    for queue_id in (0, 1):
        send(world, master, b"kept %d" % queue_id, queue_id)
    world.advance(1_000)
    world.isolate(master.name)
    world.without_authority.add(master.name)
    assert master.broker is not None
    operator = master.broker.connect()
    answers = []
    if how == "right before a kill":
        store_of(master).delete_topic("t")
        master.kill()
    else:
        answers += [operator.begin(Request.DELETE_TOPIC_IN_BROKER, {"topic": "t"})]
    if how == "again":
        answers += [operator.begin(Request.UPDATE_AND_CREATE_TOPIC, MADE | {"topic": "t"})]
        answers += [operator.begin_send("t", b"never")]
        answers += [operator.begin(Request.DELETE_TOPIC_IN_BROKER, {"topic": "t"})]
    world.until(lambda: world.serving is copy)
    assert not [one for one in answers if one and one.now.code == Response.SUCCESS]
    world.mend()
    world.without_authority.clear()
    if how == "right before a kill":
        master.start()
    world.until(world.are_in_sync)
    copy.kill()
    world.until(lambda: world.serving is master)
    assert bodies(world, master, 2) == [[b"kept 0"], [b"kept 1"]]


def test_a_deletion_that_no_record_could_follow_is_not_acknowledged_when_it_is_repeated() -> None:
    """The second one changes nothing. A master that is cut off and has a disk that fails must not
    take that for a deletion that the copies have."""
    world, master = formed(names="ab", sync_delay_ms=60_000)
    make(world, master, 1)
    send(world, master, b"kept")
    world.isolate(master.name)
    world.without_authority.add(master.name)
    assert master.broker is not None
    world.until(lambda: master.broker is not None and master.broker.syncs)
    master.broker.fail_sync()
    operator = master.broker.connect()
    answers = []
    for _ in range(2):
        answers += [operator.begin(Request.DELETE_TOPIC_IN_BROKER, {"topic": "t"})]
        world.advance(10)
    new = world.until(lambda: world.serving is not master and world.serving)
    assert [one.now.code for one in answers if one] == [Response.SERVICE_NOT_AVAILABLE] * 2
    assert bodies(world, new, 1) == [[b"kept"]]


def test_a_change_whose_file_was_saved_late_waits_for_the_copies_when_it_is_repeated() -> None:
    world, master, copy = formed_pair()
    ask(world, master, Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"GG"}')
    world.isolate(master.name)
    world.without_authority.add(master.name)
    assert master.broker is not None
    operator = master.broker.connect()
    doomed = {"groupName": "GG"}
    master.disk.room = master.disk.used
    failed = operator.begin(Request.DELETE_SUBSCRIPTIONGROUP, doomed)
    assert failed.now.code == Response.SYSTEM_ERROR, failed.now
    master.disk.room = None
    world.advance(1_500)
    assert b"GG" not in (master.disk.read("config/subscriptionGroup.json") or b"GG")
    again = operator.begin(Request.DELETE_SUBSCRIPTIONGROUP, doomed)
    world.until(lambda: world.serving is copy)
    assert not again or again.now.code != Response.SUCCESS


@pytest.mark.parametrize(
    ("code", "named"),
    [
        (Request.DELETE_TOPIC_IN_BROKER, {"topic": "t"}),
        (Request.DELETE_SUBSCRIPTIONGROUP, {"groupName": "GG"}),
        (Request.AUTH_DELETE_USER, {"username": "someone"}),
    ],
)
def test_a_replaced_master_does_not_acknowledge_to_delete_what_it_never_had(
    code: int, named: dict[str, str]
) -> None:
    world, master, copy = formed_pair()
    world.isolate(master.name)
    world.without_authority.add(master.name)
    world.until(lambda: world.serving is copy)
    make(world, copy, 1)
    assert master.broker is not None
    answer = master.broker.connect(host="127.0.0.1").begin(code, named)
    world.advance(5_000)
    assert answer.now.code != Response.SUCCESS


def test_offsets_that_an_operator_has_set_are_known_to_the_next_master() -> None:
    world, master = formed()
    sent(world, master, b"one")
    assert master.broker is not None
    caller = master.broker.connect()
    queue = {"consumerGroup": "CG", "topic": "orders", "queueId": "0"}
    commit = caller.begin(Request.UPDATE_CONSUMER_OFFSET, queue | {"commitOffset": "1"})
    world.until(lambda: commit)
    world.advance(7_000)
    fields = {"topic": "orders", "group": "CG", "timestamp": "0", "isForce": "true"}
    reset = caller.begin(Request.INVOKE_BROKER_TO_RESET_OFFSET, fields)
    world.until(lambda: reset)
    assert reset.now.code == 0
    master.kill()
    new = world.until(lambda: world.serving)
    assert new.broker is not None
    found = new.broker.connect().begin(Request.QUERY_CONSUMER_OFFSET, queue)
    world.until(lambda: found)
    assert found.now.ext == {"offset": "0"}
