from __future__ import annotations

from typing import Any

import pytest

from escrowmq.errors import UsageError
from escrowmq.net.certificate_accounts import parse_certificate_accounts


def certificate(*names: str, **more: str) -> dict[str, Any]:
    """As Python's ssl module shows one: a subject of CNs, and other names."""
    subject = ((("countryName", "XX"),), *((("commonName", name),) for name in names))
    return {"subject": subject, "subjectAltName": tuple(more.items()), "version": 3}


@pytest.mark.parametrize(
    ("setting", "shown", "account"),
    [
        ("CN:orders=o-1", certificate("orders"), "o-1"),
        ("CN:a=b=o-1", certificate("a=b"), "o-1"),
        ("DNS:orders.shop=o-1 ; URI:spiffe://shop/o=o-1", certificate(DNS="orders.shop"), "o-1"),
        ("URI:spiffe://shop/o=o-1", certificate("x", URI="spiffe://shop/o"), "o-1"),
        ("EMAIL:o@shop=o-1", certificate(email="o@shop"), "o-1"),
        ("CN", certificate("orders"), "orders"),
        ("CN;CN:orders=o-1", certificate("orders"), "o-1"),
        ("CN:orders=o-1;DNS:orders=o-1", certificate("orders", DNS="orders"), "o-1"),
        ("CN:orders=o-1", certificate(), ""),
        ("CN:orders=o-1", certificate("Orders"), ""),
        ("CN:orders=o-1", certificate("orders\0.evil"), ""),
        ("CN:orders=o-1", certificate("orders "), ""),
        ("CN:orders=o-1", certificate(DNS="orders"), ""),
        ("CN:*=o-1", certificate("orders"), ""),
        ("CN", certificate("orders\nadmin"), ""),
        ("CN", certificate("\x1b]0;x\x07"), ""),
        ("CN:a=o-1;CN:b=o-2", certificate("a", "b"), ""),
        ("CN", certificate("a", "b"), ""),
        ("CN:a=o-1", certificate(*["a"] * 101), ""),
    ],
)
def test_a_certificate_stands_for_one_account_or_for_none(
    setting: str, shown: dict[str, Any], account: str
) -> None:
    found = parse_certificate_accounts(setting).owner_of(shown)
    assert found.account == account
    assert bool(found.fault) == (
        not account and len(shown["subject"] + shown["subjectAltName"]) > 1
    )


def test_no_certificate_is_no_fault() -> None:
    assert not parse_certificate_accounts("CN").owner_of(None).fault


@pytest.mark.parametrize("text", ["orders", "CN:=o", "CN:a=", "OU:a=b", "CN:a=b;CN:a=c", "=", ":"])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="escrowCertificateAccounts"):
        parse_certificate_accounts(text)
