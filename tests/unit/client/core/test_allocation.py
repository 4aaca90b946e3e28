"""How the members of a group share queues."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.client.core.allocation import STRATEGIES, allocate
from escrowmq.client.core.routes import MessageQueue

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b") for number in range(4)]
members = st.lists(st.text("abcdef@#0123456789", min_size=1), min_size=1, max_size=12, unique=True)
queues = st.integers(0, 40).map(lambda count: [MessageQueue("T", "b", n) for n in range(count)])


@pytest.mark.parametrize("name", STRATEGIES)
@given(members=members, queues=queues)
def test_every_queue_has_one_member(
    name: str, members: list[str], queues: list[MessageQueue]
) -> None:
    shares = [allocate(STRATEGIES[name], queues, members=members, me=me) for me in members]
    assert sorted(queue for share in shares for queue in share) == queues


@pytest.mark.parametrize("name", ["average", "circle"])
@given(members=members, queues=queues)
def test_shares_are_even(name: str, members: list[str], queues: list[MessageQueue]) -> None:
    sizes = [len(allocate(STRATEGIES[name], queues, members=members, me=me)) for me in members]
    assert max(sizes) - min(sizes) <= 1


@given(members=members, queues=queues)
def test_few_queues_move_when_a_member_leaves(
    members: list[str], queues: list[MessageQueue]
) -> None:
    consistent = STRATEGIES["consistent-hash"]
    left = sorted(members)[:-1]
    for me in left:
        before = set(allocate(consistent, queues, members=members, me=me))
        after = set(allocate(consistent, queues, members=left, me=me))
        assert before <= after


@pytest.mark.parametrize(
    ("name", "me", "expected"),
    [
        ("average", "1", [0, 1, 2]),
        ("average", "2", [3, 4, 5]),
        ("average", "3", [6, 7]),
        ("circle", "1", [0, 3, 6]),
        ("circle", "2", [1, 4, 7]),
        ("circle", "3", [2, 5]),
    ],
)
def test_shares_are_those_of_the_peer(name: str, me: str, expected: list[int]) -> None:
    shuffled = QUEUES[::-1]
    found = allocate(STRATEGIES[name], shuffled, members=["3", "1", "2", "1"], me=me)
    assert found == [QUEUES[index] for index in expected]


def test_a_stranger_has_no_share() -> None:
    assert allocate(STRATEGIES["average"], QUEUES, members=["1"], me="2") == []
    assert allocate(STRATEGIES["average"], [], members=["1"], me="1") == []
