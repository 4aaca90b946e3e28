"""The addresses at which a server listens, and which it registers for clients."""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
from typing import Final

from escrowmq.errors import UsageError

_log = logging.getLogger(__name__)

ANY: Final = ("", "0.0.0.0", "::")  # noqa: S104 - compared, not bound
LOOPBACK: Final = "127.0.0.1"
_OUTSIDE: Final = ("192.0.2.1", 9)
"""An address that is reserved for documentation; nothing is ever sent to it."""


def host_and_port(host: str, port: int) -> str:
    """Return HOST:PORT, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def advertised_address(host: str, *, chosen: str | None) -> str:
    """Return the address to register for clients: the configured one, otherwise the one at which
    the broker listens. If it listens on all addresses, return the machine's own. Raises UsageError
    for a name that has no address."""
    if chosen is not None:
        return chosen
    return own_address() if host in ANY else _address_of_name(host)


def _address_of_name(host: str) -> str:
    """Return the address at which a port of this name is opened (`bind_port`). What is an address
    already is returned as it is."""
    if ":" in host and _is_address(host):
        return host
    try:
        return socket.gethostbyname(host)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"cannot listen on {host}: {reason}; an address or a name of this machine is expected"
        ) from error


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def warn_of_advertised_address(host: str, advertised: str, *, is_chosen: bool) -> None:
    """Log a warning if clients elsewhere may be unable to use the registered address."""
    if host in ANY and not is_chosen:
        _log.info(
            "%s is registered for clients; set brokerIP1 if they reach this broker at another "
            "address",
            advertised,
        )  # fmt: skip
    elif (
        is_chosen
        and host not in ANY
        and host != advertised
        and (_is_loopback(host) or _is_own_address(advertised))
    ):
        _log.warning(
            "brokerIP1=%s is registered for clients, but the broker listens on %s alone: set "
            "bindAddress=0.0.0.0, or --host", advertised, host,
        )  # fmt: skip


def warn_of_open_access(host: str, *, has_accounts: bool) -> None:
    """Log a warning if the broker is reachable from other machines and has no access control."""
    if not has_accounts and not _is_loopback(host):
        _log.warning(
            "anyone who can reach %s may read, write and change everything: there is no access "
            "control (aclEnable, authenticationEnabled; docs/security.md)",
            host or "this machine",
        )


def own_address() -> str:
    """Return the address at which others reach this machine: from the route to the outside,
    otherwise from its name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_OUTSIDE)  # sends nothing
            return str(probe.getsockname()[0])
        except OSError:
            pass
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET, socket.SOCK_DGRAM)
    except OSError:
        return LOOPBACK
    addresses = [str(item[4][0]) for item in found]
    return next((address for address in addresses if not _is_loopback(address)), LOOPBACK)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_own_address(address: str) -> bool:
    """Whether an address is one of this machine's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL
    return True
