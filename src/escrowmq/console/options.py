"""The options with which a console starts."""

from __future__ import annotations

from typing import Literal

import msgspec

from escrowmq.client.core.credentials import Credentials
from escrowmq.client.tls import TlsSetting


class LocalUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user of the console itself."""

    name: str
    password: str
    may_change: bool

    def __repr__(self) -> str:
        return f"LocalUser({self.name!r})"  # no password in any log


class ConsoleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster to show, and the users who may log in."""

    name_servers: str
    login: Literal["local", "accounts"]
    """`local`: the console's own users; `accounts`: those of the brokers, which then judge each
    request of theirs."""

    users: tuple[LocalUser, ...] = ()
    credentials: Credentials | None = None
    """With `local` users: what requests are signed with, where the brokers want it."""

    tls: TlsSetting = None
    namespace: str = ""
    is_beside_broker: bool = False
    """Whether /metrics and /readyz are those of a broker in this process."""
