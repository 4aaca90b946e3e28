"""Answers to requests that store a record of their own: a group's master gives them when the copies
have the record, as it does with sends."""

from __future__ import annotations

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request, Response
from escrowmq.codec.ids import parse_offset_id
from tests.harness.caller import Caller
from tests.harness.group import GroupWorld, MemberHost

from .test_deleted_topics import ask, bodies, make


def formed() -> tuple[GroupWorld, MemberHost, Caller]:
    world = GroupWorld(1, "ab", settings=BrokerSettings(name="b", allows_recall=True))
    world.start_all()
    world.until(world.are_in_sync)
    master = world.serving
    assert master is not None
    make(world, master, 1)
    ask(world, master, Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"CG"}')
    assert master.broker is not None
    return world, master, master.broker.connect()


def cut_off(world: GroupWorld, master: MemberHost) -> None:
    world.isolate(master.name)
    world.without_authority.add(master.name)


def test_a_recall_is_acknowledged_when_the_copies_have_it() -> None:
    world, master, caller = formed()
    sent = caller.begin_send("t", b"later", TIMER_DELAY_MS="60000")
    world.until(lambda: sent)
    recall = {"topic": "t", "recallHandle": (sent.now.ext or {})["recallHandle"]}
    done = caller.begin(Request.RECALL_MESSAGE, recall)
    assert not done
    world.until(lambda: done)
    assert done.now.code == Response.SUCCESS
    cut_off(world, master)
    failed = caller.begin(Request.RECALL_MESSAGE, recall)
    world.until(lambda: world.serving is not master and world.serving)
    assert not failed or failed.now.code != Response.SUCCESS


def test_a_recall_counts_although_the_message_is_due_before_the_copies_have_it() -> None:
    world, master, caller = formed()
    sent = caller.begin_send("t", b"later", TIMER_DELAY_MS="2000")
    world.until(lambda: sent)
    world.isolate(master.name)  # until it has shrunk the set
    recall = {"topic": "t", "recallHandle": (sent.now.ext or {})["recallHandle"]}
    done = caller.begin(Request.RECALL_MESSAGE, recall)
    world.advance(10_000)
    assert world.serving is master
    assert done
    assert bodies(world, master, 1) == [[]]


def test_a_message_that_is_sent_back_is_acknowledged_when_the_copies_have_it() -> None:
    """Its consumer goes on with the next one, and commits that at the next master, too."""
    world, master, caller = formed()
    sent = caller.begin_send("t", b"failed")
    world.until(lambda: sent)
    offset = parse_offset_id((sent.now.ext or {})["msgId"])[1]
    back = {"offset": str(offset), "group": "CG", "delayLevel": "0", "originTopic": "t"}
    first = caller.begin(Request.CONSUMER_SEND_MSG_BACK, back)  # which makes the retry topic
    world.until(lambda: first)
    assert first.now.code == Response.SUCCESS
    cut_off(world, master)
    failed = caller.begin(Request.CONSUMER_SEND_MSG_BACK, back)
    world.until(lambda: world.serving is not master and world.serving)
    assert not failed or failed.now.code != Response.SUCCESS
