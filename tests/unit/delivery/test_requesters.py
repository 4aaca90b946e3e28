from __future__ import annotations

from escrowmq.delivery.requesters import WaitingRequests


def request(number: int, client_id: str = "c") -> dict[str, str]:
    return {"REPLY_TO_CLIENT": client_id, "CORRELATION_ID": f"id-{number}"}


def test_the_first_who_asks_is_who_asked_till_it_is_answered_or_too_long_ago() -> None:
    table = WaitingRequests()
    table.remember(request(1), "one", "T", 0)
    table.remember(request(1), "two", "U", 1)
    found = table.find(request(1), 2)
    assert found is not None
    assert (found.account, found.topic) == ("one", "T")
    assert table.find(request(1), 300_000) is None
    table.remember(request(1), "two", "U", 300_000)
    found = table.find(request(1), 300_001)
    assert found is not None
    assert found.account == "two"
    table.forget_answered(request(1))
    table.forget_answered(request(1))
    assert table.find(request(1), 300_002) is None
    assert len(table) == 0


def test_what_names_no_asker_or_too_long_a_one_is_not_kept() -> None:
    table = WaitingRequests()
    for odd in ({}, {"REPLY_TO_CLIENT": "c"}, request(1, "c" * 256)):
        table.remember(odd, "one", "T", 0)
        assert table.find(odd, 0) is None
        table.forget_answered(odd)
    assert len(table) == 0


def test_an_account_at_its_share_loses_its_own_oldest_and_nobody_elses() -> None:
    table = WaitingRequests(count_max=8)
    table.remember(request(0), "one", "T", 0)
    for number in range(1, 100):
        table.remember(request(number), "two", "T", 0)
    assert table.find(request(0), 0) is not None
    assert [n for n in range(1, 100) if table.find(request(n), 0)] == [98, 99]
    for number in range(100, 120):
        table.remember(request(number), f"account {number}", "T", 0)
    assert len(table) == 8
