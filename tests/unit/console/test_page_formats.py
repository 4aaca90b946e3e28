from __future__ import annotations

import pytest

from escrowmq.console.page_formats import (
    decode_as_text,
    describe_cut,
    format_as_hex,
    format_as_json,
    format_duration,
    format_machine_time,
    format_number,
    format_percent,
    format_size,
    format_time,
    quote_for_url,
    value_or_unknown,
)


@pytest.mark.parametrize(
    "show",
    [value_or_unknown, format_number, format_percent, format_time, format_duration, format_size],
)
def test_what_nobody_knows_is_a_word(show: object) -> None:
    assert callable(show)
    assert show(None) == "unknown"


def test_numbers_are_read_at_a_glance() -> None:
    assert format_number(1_234_567) == "1\u202f234\u202f567"
    assert format_number(0.5) == "0.5"
    assert format_percent(0.255) == "26%"
    assert quote_for_url("%DLQ%mail/er") == "%25DLQ%25mail%2Fer"


def test_a_body_is_text_when_it_is_and_shows_no_orders() -> None:
    assert (
        decode_as_text("gr\u00fc\u00df\n\x1b[31m\u202e".encode())
        == "gr\u00fc\u00df\n\\x1b[31m\\u202e"
    )
    assert decode_as_text(b"\xff\x00") is None
    assert decode_as_text("\u00e9".encode() * 40_000) == "\u00e9" * 32_768
    assert decode_as_text(b"a" + "\u00e9".encode() * 40_000) == "a" + "\u00e9" * 32_767


def test_json_is_shown_with_its_structure_or_not_at_all() -> None:
    assert format_as_json(b'{"a":[1]}') == '{\n  "a": [\n    1\n  ]\n}'
    assert format_as_json(b"{") is None
    assert format_as_json(b"[" * 60_000) is None
    assert format_as_json(b'"' + b"a" * 70_000 + b'"') is None


def test_hex_shows_places_bytes_and_letters() -> None:
    assert format_as_hex(b"<b>\x00" + b"x" * 13).splitlines() == [
        "00000000  3c 62 3e 00 78 78 78 78 78 78 78 78 78 78 78 78  <b>.xxxxxxxxxxxx",
        "00000010  78                                               x",
    ]
    assert len(format_as_hex(b"x" * 10_000_000)) < 20_000


def test_what_is_left_out_is_said() -> None:
    assert describe_cut(1) == ""
    assert describe_cut(4 * 1024 * 1024) == "the first 64.0 KiB of 4.0 MiB"


@pytest.mark.parametrize("ms", [-(1 << 63), -1, 0, 1 << 62])
def test_a_time_of_any_broker_can_be_written_for_machines(ms: int) -> None:
    assert format_machine_time(ms)[:4] in ("1970", "9999")
