from __future__ import annotations

from typing import Any

import pytest

from escrowmq.errors import (
    BrokerBusy,
    ClientClosed,
    ConnectFailed,
    EscrowMQError,
    InvalidMessage,
    ManyMessagesUnsupported,
    MessageRefused,
    NoNameServer,
    PermissionDenied,
    RequestTimeout,
    RouteMissing,
    SendFailed,
    ServiceNotAvailable,
    TooManyKept,
    TopicNotFound,
)
from escrowmq.integrations.outbox.circuit import (
    DRAIN_PASSES,
    DRAIN_PAUSE_S,
    FIRST_PAUSE_S,
    IDLE_PAUSE_S,
    PAUSE_MAX_S,
    Circuit,
    CircuitState,
    is_refusal,
    is_unreachable,
)
from escrowmq.integrations.outbox.steps import StepFailed


@pytest.mark.parametrize(
    "kind", [ConnectFailed, NoNameServer, RequestTimeout, RouteMissing, SendFailed]
)
def test_what_may_succeed_later_is_kept(kind: type[EscrowMQError]) -> None:
    assert is_unreachable(kind("planted"))


@pytest.mark.parametrize("kind", [BrokerBusy, ServiceNotAvailable])
def test_so_is_what_a_broker_cannot_store_now(kind: type[EscrowMQError]) -> None:
    assert is_unreachable(kind("planted"))


@pytest.mark.parametrize("kind", [InvalidMessage, ManyMessagesUnsupported])
def test_what_is_refused_for_good_is_not(kind: type[EscrowMQError]) -> None:
    assert not is_unreachable(kind("planted"))


@pytest.mark.parametrize("kind", [PermissionDenied, TopicNotFound])
def test_nor_is_what_a_broker_refuses(kind: type[EscrowMQError]) -> None:
    assert not is_unreachable(kind("planted"))


@pytest.mark.parametrize("kind", [InvalidMessage, PermissionDenied, MessageRefused])
def test_a_refusal_is_about_the_message(kind: type[EscrowMQError]) -> None:
    assert is_refusal(kind("planted"))


@pytest.mark.parametrize("kind", [ConnectFailed, BrokerBusy, ClientClosed, StepFailed])
def test_a_failure_that_says_nothing_of_the_message_is_none(kind: type[EscrowMQError]) -> None:
    assert not is_refusal(kind("planted"))


def end_pass(circuit: Circuit, *, handed_over: int = 0, left: int = 0, **more: Any) -> float:
    return circuit.record_pass(
        handed_over=handed_over, left=left, has_failed=more.pop("has_failed", False), **more
    )


def closed() -> Circuit:
    circuit = Circuit()
    while circuit.state is not CircuitState.CLOSED:
        end_pass(circuit)
    return circuit


def test_it_begins_with_a_look_at_what_was_left_and_closes_when_there_is_nothing() -> None:
    circuit = Circuit()
    for _ in range(DRAIN_PASSES - 1):
        assert circuit.state is CircuitState.DRAINING
        assert end_pass(circuit) == DRAIN_PAUSE_S
    assert end_pass(circuit) == IDLE_PAUSE_S
    assert circuit.state is CircuitState.CLOSED


def test_the_first_failure_opens_it_and_is_news() -> None:
    circuit = closed()
    assert circuit.record_unreachable()
    assert not circuit.record_unreachable()
    assert circuit.state is CircuitState.OPEN


def test_it_drains_once_what_was_kept_is_handed_over() -> None:
    circuit = closed()
    circuit.record_unreachable()
    circuit.count_kept(2)
    assert end_pass(circuit, left=2, has_failed=True) == FIRST_PAUSE_S
    assert end_pass(circuit, handed_over=1, left=1) == 0.0
    seen = [circuit.state]
    assert end_pass(circuit, handed_over=1) == DRAIN_PAUSE_S
    seen.append(circuit.state)
    assert seen == [CircuitState.OPEN, CircuitState.DRAINING]


def test_an_empty_table_says_nothing_of_the_broker() -> None:
    """The transaction that opened the circuit has not committed yet."""
    circuit = closed()
    circuit.record_unreachable()
    circuit.count_kept(1)
    assert end_pass(circuit) == FIRST_PAUSE_S
    assert circuit.state is CircuitState.OPEN


def test_when_all_that_was_kept_is_rolled_back_the_broker_is_tried_again() -> None:
    circuit = closed()
    circuit.record_unreachable()
    circuit.count_kept(1)
    seen = []
    for _ in range(DRAIN_PASSES):
        end_pass(circuit)
        seen.append(circuit.state)
    assert seen == [CircuitState.OPEN] * (DRAIN_PASSES - 1) + [CircuitState.DRAINING]


def test_it_does_not_close_while_something_is_kept() -> None:
    circuit = closed()
    circuit.record_unreachable()
    circuit.count_kept(1)
    end_pass(circuit, handed_over=1)
    for _ in range(3 * DRAIN_PASSES):
        circuit.count_kept(1)
        end_pass(circuit, handed_over=1)
        assert circuit.state is CircuitState.DRAINING


def test_a_pass_that_fails_opens_it() -> None:
    circuit = closed()
    end_pass(circuit, left=1, has_failed=True)
    assert circuit.state is CircuitState.OPEN


def test_pauses_grow_while_brokers_are_unreachable() -> None:
    circuit = Circuit()
    pauses = [end_pass(circuit, left=1, has_failed=True) for _ in range(6)]
    assert pauses == [FIRST_PAUSE_S, 1.0, 2.0, 4.0, PAUSE_MAX_S, PAUSE_MAX_S]
    end_pass(circuit)
    assert end_pass(circuit, left=1, has_failed=True) == FIRST_PAUSE_S


def test_so_many_are_kept_and_no_more() -> None:
    circuit = Circuit(kept_max=3)
    circuit.count_kept(2)
    with pytest.raises(TooManyKept, match=r"2 messages already wait .* has 2 more; 3 are allowed"):
        circuit.count_kept(2)
    circuit.count_kept(1)
    with pytest.raises(TooManyKept):
        circuit.count_kept(1)


def test_what_a_pass_may_not_have_seen_yet_stays_counted() -> None:
    """Their transactions commit behind the pass that they have caused, and perhaps the next one."""
    circuit = Circuit(kept_max=3)
    circuit.count_kept(2)
    end_pass(circuit)
    circuit.count_kept(1)
    end_pass(circuit, left=1)
    with pytest.raises(TooManyKept, match="3 messages"):
        circuit.count_kept(1)
    end_pass(circuit, left=3)
    with pytest.raises(TooManyKept, match="3 messages"):
        circuit.count_kept(1)


def test_what_was_rolled_back_makes_room_two_passes_later() -> None:
    circuit = Circuit(kept_max=3)
    circuit.count_kept(3)
    end_pass(circuit)
    end_pass(circuit)
    with pytest.raises(TooManyKept):
        circuit.count_kept(1)
    end_pass(circuit)
    circuit.count_kept(3)


def test_what_other_processes_kept_counts_from_the_next_pass_on() -> None:
    circuit = Circuit(kept_max=3)
    end_pass(circuit, left=2)
    with pytest.raises(TooManyKept, match="2 messages"):
        circuit.count_kept(2)
    circuit.count_kept(1)


def test_what_a_pass_has_sent_makes_room_before_it_ends() -> None:
    """A pass through a hundred thousand messages takes minutes."""
    circuit = Circuit(kept_max=3)
    circuit.count_kept(3)
    circuit.count_sent(2)
    circuit.count_kept(2)
    with pytest.raises(TooManyKept):
        circuit.count_kept(1)
    circuit.count_sent(4)  # one of another process, too
    circuit.count_kept(3)


def test_refused_messages_hold_up_their_topics_alone() -> None:
    """One row that no broker takes kept all transactions in the database, until kept_max stopped
    them."""
    circuit = Circuit(kept_max=3)
    circuit.record_unreachable()
    refused = frozenset({"T"})
    pauses = [end_pass(circuit, left=1, refused=refused) for _ in range(6)]
    assert pauses == [FIRST_PAUSE_S, 1.0, 2.0, 4.0, PAUSE_MAX_S, PAUSE_MAX_S]
    assert circuit.state is CircuitState.DRAINING
    assert circuit.refused == refused
    assert end_pass(circuit, handed_over=1, left=1, refused=refused) == DRAIN_PAUSE_S
    circuit.count_kept(1, topics={"T"})
    assert not circuit.has_lately_kept, "what is kept behind them holds up no other topic"
    circuit.count_kept(1, topics={"T", "U"})
    assert circuit.has_lately_kept
    assert end_pass(circuit, left=3) == 0.0
    assert circuit.refused == frozenset()


def test_what_was_kept_lately_is_known_for_two_passes() -> None:
    """A transaction with an older snapshot does not find its rows."""
    circuit = Circuit()
    found = [circuit.has_lately_kept]
    circuit.count_kept(1)
    for _ in range(3):
        found.append(circuit.has_lately_kept)
        end_pass(circuit)
    assert [*found, circuit.has_lately_kept] == [False, True, True, False, False]
