from __future__ import annotations

import asyncio

import pytest

from escrowmq.aio import Credentials
from escrowmq.console.account_clients import AccountClients
from escrowmq.console.operations import Caller, Change, ChangeParameters, Operation
from escrowmq.console.options import ConsoleOptions
from escrowmq.console.problems import Problem
from escrowmq.console.sessions import SessionUser
from escrowmq.errors import ConnectionLost


def test_what_a_change_that_failed_may_have_changed_is_asked_again() -> None:
    """Its answer may be lost, or a part of it done."""

    async def fail(caller: Caller, wanted: ChangeParameters) -> Change:
        raise ConnectionLost("gone")

    operation = Operation(
        name="thing.delete", method="DELETE", path="/things", summary="", wants=ChangeParameters,
        gives=Change, handler=fail,
    )  # fmt: skip

    async def main() -> None:
        options = ConsoleOptions(name_servers="127.0.0.1:1", login="accounts")
        clients = AccountClients(options, lambda: 0.0)
        client = clients.client_of(Credentials("a", "secret"))
        states = iter(("before", "after"))

        async def look() -> str:
            return next(states)

        assert await client.memo.get_or_request("things", look) == "before"
        with pytest.raises(Problem):
            await operation(
                Caller(account_client=client, who=SessionUser(name="a", may_change=True)), {}
            )
        assert await client.memo.get_or_request("things", look) == "after"
        await clients.close()

    asyncio.run(main())
