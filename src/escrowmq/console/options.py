"""The options with which a console is started."""

from __future__ import annotations

import ipaddress
from typing import Literal

import msgspec

from escrowmq.client.core.credentials import Credentials
from escrowmq.client.tls import TlsSetting
from escrowmq.errors import UsageError


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
    """For `local` users: the account that signs their requests, if the brokers require one; or what
    proves to the broker in the same process that it is its console."""

    proxies: tuple[str, ...] = ()
    """Addresses and networks of the reverse proxies in front of the console. Their X-Forwarded-For
    header names the client."""

    tls: TlsSetting = None
    namespace: str = ""
    is_beside_broker: bool = False
    """Whether /metrics and /readyz are those of a broker in this process."""


def parse_proxies(text: str) -> tuple[str, ...]:
    """Parse addresses and networks of proxies, separated by commas. Raises UsageError if one is
    neither."""
    found = []
    for part in filter(None, map(str.strip, text.split(","))):
        try:
            found.append(str(ipaddress.ip_network(part)))
        except ValueError as error:
            raise UsageError(f"{part!r} is no address or network of a proxy: {error}") from error
    return tuple(found)
