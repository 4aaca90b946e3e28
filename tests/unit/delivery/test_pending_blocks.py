from __future__ import annotations

from escrowmq.delivery.pending_blocks import PendingBlocks


def test_no_record_is_pending_before_the_oldest() -> None:
    blocks = PendingBlocks()
    assert blocks.oldest_before(1_000) == 1_000
    for queue_offset in (70, 71, 400):
        blocks.add(queue_offset)
    assert blocks.oldest_before(1_000) == 70
    assert blocks.oldest_before(50) == 50
    blocks.remove(70)
    assert blocks.oldest_before(1_000) == 71
    blocks.add(71)
    blocks.remove(71)
    assert blocks.oldest_before(1_000) == 400
    blocks.remove(400)
    assert blocks.oldest_before(1_000) == 1_000
