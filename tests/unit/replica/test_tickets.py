"""Tickets: good once, not for long, and few."""

from __future__ import annotations

import random

from escrowmq.replica.sending import Ticket
from escrowmq.replica.tickets import TICKETS_MAX, VALID_MS, Tickets


def test_a_ticket_is_good_once() -> None:
    tickets = Tickets(random.Random(1))
    ticket = Ticket(start=4096, identity="b/1")
    number = tickets.issue(ticket, 0)
    assert 1 << 62 <= number < 1 << 63
    assert tickets.redeem(number - 1, 0) is None
    assert tickets.redeem(number, VALID_MS - 1) == ticket
    assert tickets.redeem(number, VALID_MS - 1) is None


def test_a_ticket_is_not_good_for_long() -> None:
    tickets = Tickets(random.Random(1))
    number = tickets.issue(Ticket(start=0, identity="b/1"), 0)
    assert tickets.redeem(number, VALID_MS) is None


def test_a_new_ticket_takes_the_place_of_the_slaves_former_one() -> None:
    tickets = Tickets(random.Random(1))
    former = tickets.issue(Ticket(start=0, identity="b/1"), 0)
    newer = tickets.issue(Ticket(start=0, identity="b/1"), 1)
    assert tickets.redeem(former, 2) is None
    assert tickets.redeem(newer, 2) is not None


def test_they_are_bounded() -> None:
    tickets = Tickets(random.Random(1))
    numbers = [tickets.issue(Ticket(start=0, identity=f"b/{n}"), 0) for n in range(TICKETS_MAX + 1)]
    assert [tickets.redeem(number, 0) is not None for number in numbers] == (
        [False] + [True] * TICKETS_MAX
    )
