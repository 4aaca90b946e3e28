"""Maps clients' certificates to accounts.

`CN:orders-service=orders;URI:spiffe://shop/pay=pay;DNS`: each item maps one name of a certificate
to an account; a kind alone (CN, DNS, URI, EMAIL) says that names of this kind are accounts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from escrowmq.errors import UsageError

SETTING: Final = "escrowCertificateAccounts"

_KINDS: Final = {"commonName": "CN", "DNS": "DNS", "URI": "URI", "email": "EMAIL"}
"""Python's names of the kinds of names in a certificate, and those of the setting."""

_NAMES_MAX: Final = 100
"""Limit of the names in a certificate; one with more stands for no account."""

Name = tuple[str, str]
"""A name in a certificate: its kind and its value."""


class CertificateOwner(msgspec.Struct, frozen=True):
    """The account that a certificate stands for, or why it stands for none."""

    account: str = ""
    """The account's name; empty if the certificate stands for none."""
    fault: str = ""
    """Why the certificate stands for no account although the setting has its names."""


class CertificateAccounts:
    """The mapping from certificates to accounts."""

    def __init__(self, accounts: Mapping[Name, str], kinds: frozenset[str]) -> None:
        self._accounts = accounts
        self._kinds = kinds

    def owner_of(self, certificate: Mapping[str, Any] | None) -> CertificateOwner:
        """Return the owner of a verified certificate, as ssl.SSLSocket.getpeercert returns it.
        Names are compared exactly, so a NUL or a line break makes a different name."""
        names = list(_certificate_names(certificate or {}))
        if not names:
            return CertificateOwner()
        if len(names) > _NAMES_MAX:
            return CertificateOwner(
                fault=f"its certificate has {len(names)} names; {_NAMES_MAX} are allowed"
            )
        found = {account for name in names if (account := self._account_of_name(name))}
        if len(found) == 1:
            return CertificateOwner(account=found.pop())
        if found:
            return CertificateOwner(
                fault=f"its certificate stands for several accounts: {sorted(found)}"
            )
        return CertificateOwner(fault=f"{SETTING} has no name of its certificate: {names[:3]}")

    def _account_of_name(self, name: Name) -> str:
        kind, text = name
        account = self._accounts.get(name, "")
        if account or kind not in self._kinds:
            return account
        return text if text.isprintable() else ""


def _certificate_names(certificate: Mapping[str, Any]) -> Iterator[Name]:
    parts = [part for level in certificate.get("subject", ()) for part in level]
    for kind, text in (*parts, *certificate.get("subjectAltName", ())):
        if kind in _KINDS:
            yield _KINDS[kind], text


def parse_certificate_accounts(text: str) -> CertificateAccounts:
    """Parse the setting; raises UsageError if it is invalid."""
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
                f"{SETTING}: {item!r}; KIND:name=account, separated by `;`, is expected, "
                f"KIND being one of {', '.join(_KINDS.values())}, or a KIND alone"
            )
        if accounts.setdefault((kind, name), account) != account:
            raise UsageError(f"{SETTING}: {kind}:{name} is mapped to two accounts; choose one")
    return CertificateAccounts(accounts, frozenset(kinds))
