"""The options with which a console is started."""

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
    """`local`: the console's own users log in; `accounts`: accounts of the brokers do, and the
    brokers judge each of their requests."""

    users: tuple[LocalUser, ...] = ()
    credentials: Credentials | None = None
    """For `local` users: the account that signs their requests, if the brokers require one."""

    tls: TlsSetting = None
    namespace: str = ""
    is_beside_broker: bool = False
    """Whether /metrics and /readyz are those of a broker in this process."""
