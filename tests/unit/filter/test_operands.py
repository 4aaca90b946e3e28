from __future__ import annotations

import math

import pytest

from escrowmq.filter.operands import (
    IncomparableError,
    OperandKind,
    compare_doubles,
    compare_values,
    parse_java_double,
    parse_java_integer,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [("5", 5), ("+5", 5), ("-5", -5), ("0005", 5), ("٥", 5), ("-2147483648", -(2**31))],
)
def test_whole_numbers_are_read_as_java_reads_them(text: str, number: int) -> None:
    assert parse_java_integer(text, OperandKind.INT) == number


@pytest.mark.parametrize(
    "text", ["", "+", "-", " 5", "5 ", "5.0", "1_0", "0x5", "2147483648", "--5", "²", "9" * 5000]
)
def test_other_text_is_no_whole_number(text: str) -> None:
    with pytest.raises(IncomparableError):
        parse_java_integer(text, OperandKind.INT)


def test_long_has_a_wider_range() -> None:
    assert parse_java_integer("9223372036854775807", OperandKind.LONG) == 2**63 - 1
    with pytest.raises(IncomparableError, match="beyond LONG"):
        parse_java_integer("9223372036854775808", OperandKind.LONG)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (" 1.5\t", 1.5),
        ("1e3", 1000.0),
        ("5.", 5.0),
        (".5", 0.5),
        ("5f", 5.0),
        ("5D", 5.0),
        ("-Infinity", -math.inf),
        ("1e999", math.inf),
        ("0x1.8p1", 3.0),
        ("0x1p99999999999999999999", math.inf),
        ("-0x1p99999", -math.inf),
        ("0x1p-99999999999999999999", 0.0),
    ],
)
def test_doubles_are_read_as_java_reads_them(text: str, number: float) -> None:
    assert parse_java_double(text) == number


@pytest.mark.parametrize("text", ["", "x", "1_0", "nan", "infinity", "0x1", "1e", "٫5", "1.5ff"])
def test_other_text_is_no_double(text: str) -> None:
    with pytest.raises(IncomparableError):
        parse_java_double(text)


def test_doubles_have_java_s_order() -> None:
    nan = parse_java_double("NaN")
    assert compare_doubles(nan, nan) == 0
    assert compare_doubles(nan, math.inf) > 0
    assert compare_doubles(1.0, nan) < 0
    assert compare_doubles(-0.0, 0.0) < 0
    assert compare_doubles(0.0, -0.0) > 0
    assert compare_doubles(2.0, 1.0) > 0


def test_truth_values_in_front_of_text_throw_but_behind_it_do_not() -> None:
    with pytest.raises(IncomparableError):
        compare_values(True, OperandKind.TRUTH, "true", OperandKind.TEXT)
    assert compare_values("TRUE", OperandKind.TEXT, True, OperandKind.TRUTH) == 0
    assert compare_values(True, OperandKind.TRUTH, 1, OperandKind.INT) == -1
    assert compare_values(1, OperandKind.INT, True, OperandKind.TRUTH) == -1


def test_mixed_numbers_are_widened() -> None:
    assert compare_values(2**53 + 1, OperandKind.LONG, float(2**53), OperandKind.DOUBLE) == 0
    assert compare_values(5, OperandKind.INT, "6", OperandKind.TEXT) < 0
    assert compare_values("7", OperandKind.TEXT, 6, OperandKind.LONG) > 0
    assert compare_values(7, OperandKind.INT, 7, OperandKind.LONG) == 0
    assert compare_values("b", OperandKind.TEXT, "a", OperandKind.TEXT) > 0
