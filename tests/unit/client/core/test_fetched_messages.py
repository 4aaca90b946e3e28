"""Fetched messages of one queue, and the offset that may be committed."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from escrowmq.client.core.fetched_messages import FetchedMessages
from escrowmq.client.core.message import ReceivedMessage


def message(queue_offset: int, *, size: int = 1) -> ReceivedMessage:
    return ReceivedMessage("T", b"x" * size, queue_offset=queue_offset)


def offsets(messages: list[ReceivedMessage]) -> list[int]:
    return [one.queue_offset for one in messages]


class ShelfMachine(RuleBasedStateMachine):
    """Against a model: sets of offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.shelf: FetchedMessages[ReceivedMessage] = FetchedMessages(next_offset=10)
        self.waiting: list[int] = []
        self.taken: dict[int, ReceivedMessage] = {}
        self.next_offset = 10

    @rule(gaps=st.lists(st.integers(1, 3), max_size=5), beyond=st.integers(0, 2))
    def put(self, gaps: list[int], beyond: int) -> None:
        found, at = [], self.next_offset - 1
        for gap in gaps:
            at += gap
            found.append(at)
        self.next_offset = at + 1 + beyond
        self.shelf.add([message(one, size=3) for one in found], next_offset=self.next_offset)
        self.waiting += found

    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        found = self.shelf.take(count)
        assert offsets(found) == self.waiting[:count]
        del self.waiting[:count]
        self.taken |= {one.queue_offset: one for one in found}

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.taken)))
        assert self.shelf.mark_settled(chosen, generation=self.shelf.generation)
        assert not self.shelf.mark_settled(chosen, generation=self.shelf.generation)
        del self.taken[chosen]

    @precondition(lambda self: self.taken)
    @rule()
    def give_back_all(self) -> None:
        back = [self.taken[one] for one in sorted(self.taken)]
        self.shelf.put_back(back, generation=self.shelf.generation)
        self.waiting = offsets(back) + self.waiting
        self.taken = {}

    @rule(to=st.integers(0, 50))
    def reset(self, to: int) -> None:
        old = self.shelf.generation
        self.shelf.reset(to)
        for one in self.taken:
            assert not self.shelf.mark_settled(one, generation=old)
        self.shelf.put_back(list(self.taken.values()), generation=old)
        self.waiting, self.taken, self.next_offset = [], {}, to

    @invariant()
    def agrees(self) -> None:
        here = {*self.waiting, *self.taken}
        assert self.shelf.commit_offset == (min(here) if here else self.next_offset)
        assert self.shelf.unsettled_count == len(here)
        assert self.shelf.size == 3 * len(here)
        assert self.shelf.waiting_count == len(self.waiting)
        expected = self.shelf.next_offset - min(here) if here else 0
        assert self.shelf.offset_span == expected


TestShelf = ShelfMachine.TestCase


def test_what_is_here_already_is_passed_over() -> None:
    shelf: FetchedMessages[ReceivedMessage] = FetchedMessages(next_offset=0)
    shelf.add([message(0), message(1)], next_offset=2)
    shelf.add([message(0), message(1), message(2)], next_offset=3)
    assert offsets(shelf.take(9)) == [0, 1, 2]


def test_the_next_offset_never_goes_back_by_itself() -> None:
    shelf: FetchedMessages[ReceivedMessage] = FetchedMessages(next_offset=5)
    shelf.add([], next_offset=3)
    assert shelf.next_offset == 5


def test_what_was_dropped_holds_the_offset() -> None:
    shelf: FetchedMessages[ReceivedMessage] = FetchedMessages(next_offset=0)
    shelf.add([message(0), message(1), message(2)], next_offset=3)
    first, second = shelf.take(2)
    shelf.put_back([first], generation=0)
    shelf.stop()
    assert shelf.take(9) == []
    assert shelf.mark_settled(second.queue_offset, generation=0)
    assert shelf.commit_offset == 0


def test_what_was_taken_before_a_reset_finishes_nothing_behind_it() -> None:
    shelf: FetchedMessages[ReceivedMessage] = FetchedMessages(next_offset=0)
    shelf.add([message(0), message(1)], next_offset=2)
    (taken,) = shelf.take(1)
    shelf.reset(0)
    shelf.add([message(0), message(1)], next_offset=2)  # the same once more
    assert not shelf.mark_settled(taken.queue_offset, generation=0)
    assert shelf.commit_offset == 0
    assert shelf.mark_settled(taken.queue_offset, generation=1)
    assert shelf.commit_offset == 1


def test_what_comes_twice_in_one_answer_is_handed_out_once() -> None:
    shelf: FetchedMessages[ReceivedMessage] = FetchedMessages(next_offset=0)
    shelf.add([message(0), message(0)], next_offset=1)
    assert offsets(shelf.take(9)) == [0]
    assert (shelf.unsettled_count, shelf.size) == (1, 1)


def test_what_is_settled_is_not_handed_out_again() -> None:
    shelf: FetchedMessages[ReceivedMessage] = FetchedMessages(next_offset=0)
    shelf.add([message(0)], next_offset=1)
    shelf.take(1)
    assert shelf.mark_settled(0, generation=0)
    shelf.add([message(0)], next_offset=1)
    assert shelf.take(1) == []
