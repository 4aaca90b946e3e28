from __future__ import annotations

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.delivery.groups import GroupTable


def test_groups_of_the_broker_are_there_and_others_are_created_on_use() -> None:
    groups = GroupTable(BrokerSettings())
    groups.create_system_groups(1)
    transactions = groups.find("CID_RMQ_SYS_TRANS")
    assert transactions is not None
    assert transactions.consume_broadcast_enable
    assert groups.find("G") is None
    assert groups.get_or_create("G", 2) is groups.find("G")
    assert groups.delete("G", 3)
    assert not groups.delete("G", 4)


@pytest.mark.parametrize("name", ["", "a b", "g" * 256])
def test_group_with_a_bad_name_is_not_created(name: str) -> None:
    assert GroupTable(BrokerSettings()).get_or_create(name, 1) is None
