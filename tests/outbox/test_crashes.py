"""Whichever step a process dies behind: an order has its events, or there is neither."""

from __future__ import annotations

import random

import pytest

from tests.interop.servers import Server

from .conftest import Place
from .crashes import STEPS, Shop, crash, differences, prepare
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
