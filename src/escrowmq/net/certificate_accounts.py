"""Which account a client's certificate stands for.

`CN:orders-service=orders;URI:spiffe://shop/pay=pay;DNS`: each item maps one name of a certificate
to an account; a kind alone (CN, DNS, URI, EMAIL) says that names of this kind are accounts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from escrowmq.errors import UsageError

SETTING: Final = "escrowCertificateAccounts"

_KINDS: Final = {"commonName": "CN", "DNS": "DNS", "URI": "URI", "email": "EMAIL"}
"""What Python's ssl module calls them, and we."""

_NAMES_MAX: Final = 100
"""Names of one certificate that are looked at; one with more stands for nobody."""

Name = tuple[str, str]
"""A kind and what is said."""


class CertificateOwner(msgspec.Struct, frozen=True):
    """Whose a certificate is."""

    account: str = ""
    """Empty when it is nobody's."""
    fault: str = ""
    """Why a certificate that has names is nobody's."""


class Identities:
    """The accounts that certificates stand for."""

    def __init__(self, accounts: Mapping[Name, str], kinds: frozenset[str]) -> None:
        self._accounts = accounts
        self._kinds = kinds

    def of(self, certificate: Mapping[str, Any] | None) -> CertificateOwner:
        """Whose a certificate is, as ssl.SSLSocket.getpeercert has it, once it was verified. A
        name counts as a whole, to the letter: one with a NUL or a line break in it is another."""
        names = list(_names(certificate or {}))
        if not names:
            return CertificateOwner()
        if len(names) > _NAMES_MAX:
            return CertificateOwner(
                fault=f"its certificate has {len(names)} names; {_NAMES_MAX} are allowed"
            )
        found = {account for name in names if (account := self._account(name))}
        if len(found) == 1:
            return CertificateOwner(account=found.pop())
        if found:
            return CertificateOwner(
                fault=f"its certificate stands for several accounts: {sorted(found)}"
            )
        return CertificateOwner(fault=f"{SETTING} has no name of its certificate: {names[:3]}")

    def _account(self, name: Name) -> str:
        kind, text = name
        account = self._accounts.get(name, "")
        if account or kind not in self._kinds:
            return account
        return text if text.isprintable() else ""


def _names(certificate: Mapping[str, Any]) -> Iterator[Name]:
    parts = [part for level in certificate.get("subject", ()) for part in level]
    for kind, text in (*parts, *certificate.get("subjectAltName", ())):
        if kind in _KINDS:
            yield _KINDS[kind], text


def read_identities(text: str) -> Identities:
    """As the setting says; UsageError when it cannot be read."""
    accounts: dict[Name, str] = {}
    kinds = set()
    for item in filter(None, (part.strip() for part in text.split(";"))):
        if item in _KINDS.values():
            kinds.add(item)
            continue
        named, _, account = item.rpartition("=")
        kind, _, name = named.partition(":")
        if kind not in _KINDS.values() or not name or not account:
            raise UsageError(
                f"{SETTING}: {item!r}; KIND:name=account is expected, with ; between, KIND being "
                f"one of {', '.join(_KINDS.values())}, or a KIND alone"
            )
        if accounts.setdefault((kind, name), account) != account:
            raise UsageError(f"{SETTING}: {kind}:{name} stands for two accounts; choose one")
    return Identities(accounts, frozenset(kinds))
