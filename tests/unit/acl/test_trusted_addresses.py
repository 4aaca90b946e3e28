from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.acl.trusted_addresses import NOBODY, address_parts, parse_pattern
from escrowmq.errors import UsageError


def matches(pattern: str | None, host: str) -> bool:
    return parse_pattern(pattern).matches(address_parts(host))


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("10.0.0.1", ["10.0.0.1", "::ffff:10.0.0.1"], ["10.0.0.2", "::1"]),
        ("10.0.0.1,10.0.0.3", ["10.0.0.1", "10.0.0.3"], ["10.0.0.2"]),
        ("10.0.0.{1,3}", ["10.0.0.1", "10.0.0.3"], ["10.0.0.2"]),
        ("10.0.0.*", ["10.0.0.0", "10.0.0.255"], ["10.0.1.0", "110.0.0.0"]),
        ("10.0.*.*", ["10.0.0.0", "10.0.255.9"], ["10.1.0.0"]),
        ("10.0.*", [], []),
        ("10.*.*.*", ["10.9.8.7"], ["11.9.8.7"]),
        ("10.0.3-5.*", ["10.0.3.9", "10.0.5.0"], ["10.0.2.255", "10.0.6.0"]),
        ("10.0.3-5.77", ["10.0.4.1"], ["10.0.6.77"]),
        ("10.0.0.3-5", ["10.0.0.3", "10.0.0.5"], ["10.0.0.2", "10.0.0.6"]),
        ("10.1-2.0.5", ["10.2.9.9"], ["10.3.0.5"]),
        ("fe80::1", ["fe80::1", "FE80:0:0:0:0:0:0:1", "fe80::1%eth0"], ["fe80::2"]),
        ("fe80::{1,a}", ["fe80::1", "fe80::a"], ["fe80::b"]),
        ("fe80::1:*", ["fe80::1:0", "fe80::1:ffff"], ["fe80::2:0"]),
        ("fe80::1:0-ff", ["fe80::1:ff"], ["fe80::1:100"]),
        ("fe80::1:0-ff:*", ["fe80::1:ff:1234"], ["fe80::1:100:1234"]),
        ("1:2:3:4:5:6:7:*", ["1:2:3:4:5:6:7:8"], ["1:2:3:4:5:6:8:8"]),
        ("fe80::*", ["fe80:0:9::"], ["fe80:1::"]),
        ("1:2:*", ["1:2:3::", "1:2::"], ["1:3::"]),
        ("::1:*", ["::1:9"], ["::2:9"]),
        ("*", ["1.2.3.4", "::1", "no address"], []),
        ("*.*.*.*", ["1.2.3.4", "::1"], []),
        ("*:*:*:*:*:*:*:*", ["1.2.3.4", "::1"], []),
        (None, [], ["1.2.3.4", "no address"]),
        ("  ", [], ["1.2.3.4"]),
    ],
)
def test_patterns(pattern: str | None, inside: list[str], outside: list[str]) -> None:
    if not inside and not outside:
        with pytest.raises(UsageError):
            parse_pattern(pattern)
        return
    assert [host for host in inside if not matches(pattern, host)] == []
    assert [host for host in outside if matches(pattern, host)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "10.0.0", "10.0.0.256", "10.0.0.01", "10.0.0.0/8", "localhost", "10.0.0.1, 10.0.0.2",
        "10.0.{1,2}.3", "10.0.0.1{2,3}", "10.0.{1,2}", "{1,2}", "1-2.0.0.1", "*.0.0.1",
        "10.0.0.5-3", "10.0.0.-3", "10.0.0.3-", "10.0.0.0-0", "10.0.0.1-2-3", "10.0.0.1-999",
        "10.x.*.*", "10.0.0.a-b", "fe80:*:1", "fe80::1*", "fe80:1-2:3", "1-2:3:*:*",
        "1:2-3:4-5", "1:2-3:4-5:*",
        "fe80::1:0-fffff", "fe80::x:*", "1:2:3:4:5:6:7:8:*", "-", "10.0.0.٣-5", "fe80::1%eth0",
        ",10.0.0.1,x", "1:2:3:4:5:6:1-2:7:*",
    ],
)  # fmt: skip
def test_malformed_patterns_are_refused_and_shown(pattern: str) -> None:
    with pytest.raises(UsageError, match="address "):
        parse_pattern(pattern)


def test_a_host_that_is_no_address_is_nobodys() -> None:
    assert address_parts("somewhere") == ()
    assert not NOBODY.matches(())
    assert not parse_pattern("10.0.0.*").matches(())


@given(
    host=st.ip_addresses(v=4), at=st.integers(1, 3), low=st.integers(0, 255), size=st.integers(0, 9)
)
def test_ranges_hold_what_lies_between(
    host: ipaddress.IPv4Address, at: int, low: int, size: int
) -> None:
    parts = list(map(str, host.packed))
    high = min(255, low + size)
    if not high:
        return
    value = host.packed[at]
    pattern = ".".join([*parts[:at], f"{low}-{high}", *["*"] * (3 - at)])
    assert matches(pattern, str(host)) == (low <= value <= high)


@given(text=st.text(max_size=40) | st.text("0123456789abcdef.:*-{}, ", max_size=40))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    try:
        pattern = parse_pattern(text)
    except UsageError:
        return
    for host in ("127.0.0.1", "::1", ""):
        pattern.matches(address_parts(host))
