from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from escrowmq.aio import Credentials
from escrowmq.console import account_clients
from escrowmq.console.account_clients import AccountClients
from escrowmq.console.options import ConsoleOptions
from escrowmq.console.problems import Problem


def run(monkeypatch: pytest.MonkeyPatch, test: Any) -> None:
    monkeypatch.setattr(account_clients, "ACCOUNT_CLIENTS_MAX", 2)

    async def go() -> None:
        options = ConsoleOptions(name_servers="127.0.0.1:1", login="accounts")
        desks = AccountClients(options, lambda: 0.0)
        try:
            await test(desks, [Credentials(f"account-{n}", "secret") for n in range(3)])
        finally:
            await desks.close()

    asyncio.run(go())


def test_of_too_many_accounts_the_one_that_rests_longest_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def go(desks: AccountClients, names: list[Credentials]) -> None:
        one, two = desks.client_of(names[0]), desks.client_of(names[1])
        assert desks.client_of(names[0]) is one
        desks.client_of(names[2])
        assert desks.client_of(names[0]) is one
        assert desks.client_of(names[1]) is not two

    run(monkeypatch, go)


def test_an_account_at_work_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go(desks: AccountClients, names: list[Credentials]) -> None:
        is_over = asyncio.Event()

        async def steps() -> AsyncIterator[str]:
            await is_over.wait()
            yield ""

        with desks.client_of(names[0]).in_use():
            desk = desks.client_of(names[1])
            job = desk.jobs.start_job("redeliver", steps, who="account-1", total=1)
            with pytest.raises(Problem, match="2 accounts are at work") as refused:
                desks.client_of(names[2])
            assert refused.value.status == 503
        desks.client_of(names[2])
        assert job.ended_s is None
        is_over.set()
        while desk.jobs.running_count:
            await asyncio.sleep(0)
        assert job.state == "done"

    run(monkeypatch, go)
