from __future__ import annotations

import pytest

from escrowmq.delivery.auto_created import AutoCreateQuota, RequestAccount
from escrowmq.errors import UsageError


def test_a_name_counts_for_who_made_it_until_it_is_gone() -> None:
    present = RequestAccount()
    made = AutoCreateQuota(present, most=2, setting="most")
    made.add_created("an operator's")
    for present.account in ("a", "b"):
        for name in ("1", "2"):
            made.check_quota(name)
            made.add_created(present.account + name)
        with pytest.raises(
            UsageError, match="has already created 2 by using them, and most=2 allows no more"
        ):
            made.check_quota("3")
    made.remove_deleted("a1")
    made.remove_deleted("never there")
    assert [made.count(account) for account in ("a", "b", "")] == [1, 2, 0]
    again = AutoCreateQuota(present, most=2)
    again.load(made.names_by_account())
    assert (again.names_by_account(), again.changes) == (made.names_by_account(), 0)
    made.add_created("b1")
    assert [made.count(account) for account in ("a", "b")] == [1, 2]
