from __future__ import annotations

import pytest

from escrowmq.base import fixed_limits
from escrowmq.delivery.auto_created import AutoCreateQuota, RequestAccount
from escrowmq.delivery.offsets import OffsetTable


@pytest.fixture(name="quota")
def make_quota(monkeypatch: pytest.MonkeyPatch) -> AutoCreateQuota:
    monkeypatch.setattr(fixed_limits, "OFFSETS_MAX", 12)
    monkeypatch.setattr(fixed_limits, "OFFSETS_OF_ACCOUNT_MAX", 3)
    present = RequestAccount()
    quota = AutoCreateQuota(present)
    for account, groups in {"mallory": ("M1", "M2"), "bob": ("B",)}.items():
        present.account = account
        for group in groups:
            quota.add_created(group)
    return quota


def commit(offsets: OffsetTable, group: str, count: int) -> int:
    """Commit offsets in this many queues; return how many are kept."""
    kept = 0
    for queue_id in range(count):
        if not offsets.why_not_kept(group, "T", queue_id, 0):
            offsets.commit(group, "T", queue_id, 5, 0)
            kept += 1
        offsets.limit_memory()
        offsets.mark_saved()
    return kept


def test_the_groups_of_one_account_have_at_most_a_quarter(quota: AutoCreateQuota) -> None:
    offsets = OffsetTable(quota)
    assert commit(offsets, "M1", 2) == 2
    assert commit(offsets, "M2", 9) == 1
    assert "account mallory" in offsets.why_not_kept("M1", "T", 5, 0)
    assert commit(offsets, "B", 2) == 2
    assert commit(offsets, "of-an-operator", 5) == 5
    offsets.forget_group("M1")
    offsets.limit_memory()
    assert commit(offsets, "M2", 9) == 3


def test_a_full_table_keeps_the_offsets_that_it_has(quota: AutoCreateQuota) -> None:
    offsets = OffsetTable(quota)
    assert commit(offsets, "G", 20) == 12
    assert commit(offsets, "B", 1) == 0
    assert commit(offsets, "G", 20) == 12
    assert "12 offsets" in offsets.why_not_kept("G", "U", 0, 0)


def test_where_groups_pull_is_forgotten_when_it_is_too_much(quota: AutoCreateQuota) -> None:
    offsets = OffsetTable(quota)
    for queue_id in range(13):
        offsets.note_pulled("G", "T", queue_id, 1)
        assert offsets.pulled_offset("G", "T", 0) == 1
    offsets.limit_memory()
    assert offsets.pulled_offset("G", "T", 0) == -1
