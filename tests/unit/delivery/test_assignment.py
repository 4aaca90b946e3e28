from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec.fastjson import QueueId
from escrowmq.delivery.assignment import (
    ALL_QUEUES,
    POP,
    PULL,
    RequestMode,
    RequestModes,
    allocate_evenly,
    allocate_in_turn,
    assign_queues,
)
from escrowmq.errors import RemoteProtocolError


def queues(count: int, *brokers: str) -> list[QueueId]:
    names = brokers or ("a",)
    return [QueueId(name, index, "T") for name in names for index in range(count)]


def ids(found: list[QueueId] | None) -> list[int]:
    assert found is not None
    return [queue.queue_id for queue in found]


def pop(share: int) -> RequestMode:
    return RequestMode(consumer_group="G", mode=POP, pop_share_queue_num=share, topic="T")


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([allocate_evenly, allocate_in_turn]))
def test_every_queue_has_one_client(
    queues_count: int, clients_count: int, allocate: object
) -> None:
    assert callable(allocate)
    clients = [f"c{index:02}" for index in range(clients_count)]
    shares = [allocate(client, queues(queues_count), clients) for client in clients]
    assert sorted(ids([queue for share in shares for queue in share])) == list(range(queues_count))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_the_peers_own_shares() -> None:
    clients = ["x", "y", "z"]
    assert [ids(allocate_evenly(one, queues(8), clients)) for one in clients] == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7],
    ]
    assert [ids(allocate_in_turn(one, queues(8), clients)) for one in clients] == [
        [0, 3, 6],
        [1, 4, 7],
        [2, 5],
    ]
    assert allocate_evenly("w", queues(8), clients) == []
    assert allocate_in_turn("w", queues(8), clients) == []


def test_queues_and_clients_are_sorted_before_they_are_shared() -> None:
    mode = RequestMode(mode=PULL)
    found = assign_queues(mode, "AVG", "x", queues(2, "b", "a"), ["y", "x"])
    assert found == queues(2, "a")


@pytest.mark.parametrize("share", [-1, 0, 2, 3])
def test_popping_clients_share_all_queues(share: int) -> None:
    found = assign_queues(pop(share), "AVG", "x", queues(4, "a", "b"), ["x", "y", "z"])
    assert found == [QueueId("a", ALL_QUEUES, "T"), QueueId("b", ALL_QUEUES, "T")]


def test_popping_clients_help_the_next_ones() -> None:
    clients = ["v", "w", "x", "y"]
    assert ids(assign_queues(pop(1), "AVG", "y", queues(8), clients)) == [6, 7, 0, 1]
    assert ids(assign_queues(pop(2), "AVG", "v", queues(8), clients)) == [0, 1, 2, 3, 4, 5]
    assert ids(assign_queues(pop(1), "AVG", "y", queues(2), clients)) == [1]
    assert assign_queues(pop(1), "AVG", "none", queues(8), clients) == []


def test_nothing_can_be_said() -> None:
    for strategy, client, there, clients in (
        ("MACHINE_ROOM", "x", 2, ["x"]),
        ("AVG", "", 2, ["x"]),
        ("AVG", "x", 0, ["x"]),
        ("AVG", "x", 2, []),
    ):
        assert assign_queues(pop(1), strategy, client, queues(there), clients) is None


def test_modes_are_kept_in_the_peers_file() -> None:
    modes = RequestModes(PULL)
    text = {"consumerGroup": "G", "mode": "POP", "popShareQueueNum": 8, "topic": "T"}
    data = modes.encode_with(pop(8))
    assert json.loads(data) == {"messageRequestModeMap": {"T": {"G": text}}}
    assert modes.get("T", "G").mode == PULL
    modes.put(pop(8))
    assert json.loads(modes.encode()) == json.loads(data)
    read = RequestModes(PULL)
    read.load(data)
    assert read.get("T", "G") == pop(8)
    with pytest.raises(RemoteProtocolError):
        read.load(b"nonsense")
    read.load(None)
    assert read.get("T", "G").mode == PULL


def test_the_default_mode_is_not_for_retry_topics() -> None:
    modes = RequestModes(POP)
    assert (modes.get("T", "G").mode, modes.get("T", "G").pop_share_queue_num) == (POP, -1)
    assert modes.get("%RETRY%G", "G").mode == PULL
