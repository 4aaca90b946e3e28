from __future__ import annotations

import pytest

from escrowmq.base.codes import Version
from escrowmq.broker.sends.retry_limit import is_dead_letter
from escrowmq.delivery.groups import GroupConfig


@pytest.mark.parametrize(
    ("redelivery", "times_max", "version", "expected"),
    [
        (16, None, Version.OURS, False),
        (17, None, Version.OURS, True),
        (3, 2, Version.OURS, True),
        (20, 20, Version.OURS, False),
        (1, 0, Version.OURS, True),
        # Older senders write a limit that they do not mean.
        (3, 2, Version.V3_4_9 - 1, False),
    ],
)
def test_the_redelivery_after_the_last_is_none(
    redelivery: int, times_max: int | None, version: int, expected: bool
) -> None:
    group = GroupConfig(group_name="G")
    assert group.retry_max_times == 16
    found = is_dead_letter(redelivery, group, times_max=times_max, sender_version=version)
    assert found is expected
