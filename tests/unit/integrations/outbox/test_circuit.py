from __future__ import annotations

import pytest

from escrowmq.errors import (
    BrokerBusy,
    ConnectFailed,
    EscrowMQError,
    InvalidMessage,
    ManyMessagesUnsupported,
    NoNameServer,
    PermissionDenied,
    RequestTimeout,
    RouteMissing,
    SendFailed,
    ServiceNotAvailable,
    TopicNotFound,
)
from escrowmq.integrations.outbox.circuit import (
    FIRST_PAUSE_S,
    IDLE_PAUSE_S,
    PAUSE_MAX_S,
    Circuit,
    TooManyKept,
    is_unreachable,
)


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


def test_the_first_failure_opens_it_and_an_empty_pass_closes_it() -> None:
    circuit = Circuit()
    assert not circuit.is_open
    assert circuit.fail()
    assert not circuit.fail()
    circuit.keep(2)
    begun = circuit.begin_pass()
    assert circuit.end_pass(begun, left=2, has_failed=True) == FIRST_PAUSE_S
    assert circuit.is_open
    begun = circuit.begin_pass()
    assert circuit.end_pass(begun, left=0, has_failed=False) == IDLE_PAUSE_S
    assert not circuit.is_open


def test_it_stays_open_when_something_was_kept_during_the_pass() -> None:
    circuit = Circuit()
    circuit.fail()
    begun = circuit.begin_pass()
    circuit.keep(1)
    assert circuit.end_pass(begun, left=0, has_failed=False) == 0.0
    assert circuit.is_open
    assert circuit.end_pass(circuit.begin_pass(), left=1, has_failed=False) == 0.0


def test_pauses_grow_while_brokers_are_unreachable() -> None:
    circuit = Circuit()
    pauses = [circuit.end_pass(circuit.begin_pass(), left=1, has_failed=True) for _ in range(6)]
    assert pauses == [FIRST_PAUSE_S, 1.0, 2.0, 4.0, PAUSE_MAX_S, PAUSE_MAX_S]
    circuit.end_pass(circuit.begin_pass(), left=0, has_failed=False)
    assert circuit.end_pass(circuit.begin_pass(), left=1, has_failed=True) == FIRST_PAUSE_S


def test_so_many_are_kept_and_no_more() -> None:
    circuit = Circuit(kept_max=3)
    circuit.keep(2)
    with pytest.raises(TooManyKept, match=r"2 messages wait .* 3 are allowed .* has 2 more"):
        circuit.keep(2)
    circuit.keep(1)
    circuit.end_pass(circuit.begin_pass(), left=0, has_failed=False)
    circuit.keep(3)
