"""Changes of tables at a master that was replaced before its copies had them: they were refused,
and never come into force."""

from __future__ import annotations

from escrowmq.base.codes import Request, Response

from .test_failover import formed, sent

CHANGES = "config/brokerChanges.json"


def test_a_table_that_only_a_replaced_master_has_is_removed_there() -> None:
    world, master = formed()
    sent(world, master, b"one")
    world.isolate(master.name)
    world.without_authority.add(master.name)
    assert master.broker is not None
    operator = master.broker.connect()
    wish = b"waitTimeMillsInSendQueue=777\n"
    refused = operator.begin(Request.UPDATE_BROKER_CONFIG, {}, wish)
    new = world.until(lambda: world.serving is not master and world.serving)
    assert not refused or refused.now.code != Response.SUCCESS
    for _ in range(2):  # the second change leaves a former version of the file behind
        operator.begin(Request.UPDATE_BROKER_CONFIG, {}, wish.replace(b"777", b"778"))
    assert master.disk.read(CHANGES)
    world.mend()
    world.without_authority.clear()
    world.until(world.are_in_sync)
    assert master.disk.read(CHANGES) is None
    assert master.disk.read(f"{CHANGES}.bak") is None
    new.kill()
    world.until(lambda: world.serving)
