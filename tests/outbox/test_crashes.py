"""Whichever step a process dies behind: an order has its events, or there is neither."""

from __future__ import annotations

import random

import pytest

from tests.interop.servers import Server

from .conftest import Place
from .crashes import LOST, STEPS, Shop, crash, differences, prepare
from .test_check_from_db import address_of

pytestmark = pytest.mark.crash


def test_no_step_parts_an_order_from_its_events(
    server: Server, topic: str, group: str, place: Place
) -> None:
    shop = Shop(address_of(place), server.nameserver, group, topic)
    prepare(shop)
    chance = random.Random(0)
    for number, step in enumerate([*STEPS, "any", "any"]):
        crash(shop, step, number, chance)
    assert differences(shop, server) == []


def test_nor_does_a_broker_that_is_lost_at_any_step_and_events_that_are_kept(
    server: Server, topic: str, group: str, place: Place
) -> None:
    shop = Shop(address_of(place), server.nameserver, group, topic, keeps=True)
    prepare(shop)
    chance = random.Random(0)
    runs = [(lost, step) for lost in LOST for step in ("order", "halves", "left", "commit", "none")]
    chance.shuffle(runs)
    for number, (lost, step) in enumerate(runs):
        crash(shop, step, number, chance, lost=lost)
    assert differences(shop, server) == []
