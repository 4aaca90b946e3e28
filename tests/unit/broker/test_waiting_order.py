"""Whoever has waited first for a message is asked first, whatever stands in one input with it.

Inputs are drawn by chance: sends and pops, one behind the other, of several connections, groups and
queues. A pop that is answered with a message must not have overtaken one of its group that came
before it, still waits, and could have had that message. Consumers of one group ask alike, as
clients do: all of them for any queue, or each for one.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from escrowmq.base.codes import Flag, Request
from escrowmq.broker.reads.message_selection import sql_selector
from tests.unit.broker.consumer import PopConsumer
from tests.unit.broker.world import World, bodies

QUEUES = 2
RETRY = "%RETRY%G_T"
"""Where the group G gets messages of T again."""


class Send(NamedTuple):
    queue: int


class SendAgain(NamedTuple):
    """A message of the retry topic of G."""


class Pop(NamedTuple):
    group: str
    queue: int
    most: int


Step = Send | SendAgain | Pop


def _inputs(queues: list[int]) -> st.SearchStrategy[list[tuple[int, list[Step]]]]:
    """By whom each input is, and what stands in it; pops are of some queues (-1: any). Where those
    of one group ask for several queues, the messages that all of them want are left out."""
    again: list[Step] = [SendAgain()] if len(queues) == 1 else []
    pops = st.builds(Pop, st.sampled_from("GH"), st.sampled_from(queues), st.integers(1, 3))
    sends = st.builds(Send, st.integers(0, QUEUES - 1))
    kinds = [sends, pops, *map(st.just, again)]
    steps = st.lists(st.one_of(kinds), min_size=1, max_size=6)
    return st.lists(st.tuples(st.integers(1, 3), steps), min_size=2, max_size=8)


_drawn = _inputs([-1]) | _inputs([0, 1])


class Waiting(NamedTuple):
    pop: Pop
    peer: int


def send_frame(world: World, topic: str, queue: int) -> bytes:
    """A message whose body says where it was sent to."""
    fields = {
        "topic": topic, "queueId": queue, "sysFlag": 0, "bornTimestamp": world.now_ms,
        "producerGroup": "P", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
        "properties": "",
    }  # fmt: skip
    return world.frame(Request.SEND_MESSAGE, fields, f"{topic} {queue}".encode())


class GroupQueue:
    """A broker, and who waits there, in the order in which they came."""

    def __init__(self, *, is_order: bool = False) -> None:
        self.is_order = is_order
        self.world = World(pop_retry_first_percent=0)
        self.world.topic("T", QUEUES)
        self.world.topic(RETRY)
        self.asked: dict[int, Waiting] = {}
        self.got: dict[int, list[str]] = {}
        """What each pop was given: bodies, which say the topic and the queue."""

    def frame(self, step: Step, peer: int) -> bytes:
        """A step as its request."""
        world = self.world
        if isinstance(step, Pop):
            consumer = PopConsumer(world, group=step.group, is_order=self.is_order)
            fields = consumer.fields(queueId=step.queue, maxMsgNums=step.most, pollTime=15_000)
            frame = world.frame(Request.POP_MESSAGE, fields)
            self.asked[world.serial] = Waiting(step, peer)
            return frame
        topic, queue = ("T", step.queue) if isinstance(step, Send) else (RETRY, 0)
        return send_frame(world, topic, queue)

    def feed(self, peer: int, steps: list[Step]) -> None:
        """All of it in one read; then look who was served."""
        self.world.feed(b"".join(self.frame(step, peer) for step in steps), peer)
        served = []
        for each in range(1, 4):
            for reply in self.world.take_replies(each):
                assert reply.opaque in self.asked or reply.code == 0, reply
                if reply.opaque in self.asked:
                    served.append(reply.opaque)
                    assert reply.flag & Flag.REPLY
                    self.got[reply.opaque] = bodies(reply)
        self.check(served)

    def check(self, served: list[int]) -> None:
        still = [number for number in self.asked if number not in self.got]
        for number in served:
            assert self.got[number], "a pop that waits was answered with nothing"
            pop = self.asked[number].pop
            for before in still:
                other = self.asked[before].pop
                assert not (before < number and _could_have(other, pop, self.got[number])), (
                    f"pop {number} {pop} was served, and {before} {other}, "
                    "which came before it, waits"
                )


def _could_have(other: Pop, pop: Pop, got: list[str]) -> bool:
    """Whether a pop could have had one of the messages that another one got."""
    wanted = {f"T {queue}" for queue in range(QUEUES) if other.queue in (-1, queue)}
    return other.group == pop.group and not {f"{RETRY} 0", *wanted}.isdisjoint(got)


@example(False, [(1, [Pop("G", -1, 1)]), (2, [Send(0), Pop("G", -1, 1)])])
@example(False, [(1, [Pop("G", 0, 1)]), (1, [Pop("G", -1, 1)]), (2, [Send(0)])])
@example(False, [(1, [Pop("G", 0, 1), Pop("G", 0, 1), Pop("G", 1, 1), SendAgain(), Send(0)])])
@example(False, [(1, [Pop("G", -1, 1)]), (2, [Send(0), Pop("H", -1, 1), Pop("G", -1, 1)])])
@given(st.booleans(), _drawn)
def test_whoever_waited_first_is_served_first(
    is_order: bool,
    inputs: list[tuple[int, list[Step]]],
) -> None:
    line = GroupQueue(is_order=is_order)
    for peer, steps in inputs:
        line.feed(peer, steps)


@given(st.booleans(), _drawn)
def test_nobody_waits_for_a_message_that_is_there(
    is_order: bool,
    inputs: list[tuple[int, list[Step]]],
) -> None:
    line = GroupQueue(is_order=is_order)
    for peer, steps in inputs:
        line.feed(peer, steps)
    line.world.run(1)
    line.feed(1, [])
    waiting = [w.pop for number, w in line.asked.items() if number not in line.got]
    for pop in waiting:
        probe = PopConsumer(line.world, group=pop.group, peer=9, is_order=is_order)
        assert bodies(probe.ask(queueId=pop.queue)) == []


def test_who_waits_for_a_queue_that_becomes_free_is_asked_before_who_comes_then() -> None:
    """The queue of an orderly group: its messages were not acknowledged, and their time is over;
    the broker's timer has not come yet when another one asks."""
    line = GroupQueue(is_order=True)
    line.feed(1, [Send(0), Pop("G", 0, 1)])
    line.feed(1, [Pop("G", 0, 1)])
    assert list(line.got) == [2]
    line.world.now_ms += 10_000
    line.feed(2, [Pop("G", 0, 1)])
    assert list(line.got) == [2, 3]


def test_who_waits_while_more_is_there_is_asked_before_who_comes_then() -> None:
    """A pop with a filter passed over so much that it goes on in the next turn; another connection
    is read before that."""
    world = World()
    world.topic()
    first, second = PopConsumer(world, peer=1), PopConsumer(world, peer=2)
    expression = f"TAGS = 'yes' OR TAGS = '{12_000 * 'x'}'"
    for _ in range(6 * sql_selector(_no, size=len(expression)).tested_max):
        world.send("other", TAGS="no")
    world.send("wanted", TAGS="yes")
    first.wait(exp=expression, expType="SQL92", maxMsgNums=1)
    assert not world.take_replies(1)
    second.wait(exp=expression, expType="SQL92", maxMsgNums=1)
    world.run(1)
    assert bodies(world.reply(1)) == ["wanted"]
    assert not world.take_replies(2)


def _no(properties: object) -> bool:
    return False


@pytest.mark.parametrize("count", [1, 3])
def test_pulls_take_nothing_from_one_another(count: int) -> None:
    """Whoever pulls in the input of the message that others wait for: all of them get it."""
    world = World()
    world.topic()
    fields = {
        "consumerGroup": "G", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32,
        "sysFlag": 2 | 4, "commitOffset": 0, "suspendTimeoutMillis": 15_000, "subscription": "*",
        "expressionType": "TAG", "subVersion": 1,
    }  # fmt: skip
    for peer in range(1, count + 1):
        world.tell(Request.PULL_MESSAGE, fields, peer=peer)
    frames = [send_frame(world, "T", 0), world.frame(Request.PULL_MESSAGE, fields)]
    world.feed(b"".join(frames), 9)
    for peer in range(1, count + 1):
        assert bodies(world.reply(peer)) == ["T 0"]
