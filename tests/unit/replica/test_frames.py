"""Reports and transfers, cut anywhere."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.errors import RemoteProtocolError
from escrowmq.replica.frames import (
    BODY_SIZE_MAX,
    ReportReader,
    Transfer,
    TransferReader,
    encode_header,
    encode_report,
)

CUTS = st.lists(st.integers(1, 40), min_size=1, max_size=30)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    parts: list[bytes] = []
    while data:
        size = sizes[len(parts) % len(sizes)]
        parts.append(data[:size])
        data = data[size:]
    return parts


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20), CUTS)
def test_reports_cut_anywhere(ends: list[int], sizes: list[int]) -> None:
    reader = ReportReader()
    found = [
        pair
        for part in cut(b"".join(map(encode_report, ends)), sizes)
        if (pair := reader.read_reports(part)) is not None
    ]
    assert (found[0][0], found[-1][1]) == (ends[0], ends[-1])
    at = iter(ends)
    assert all(newest in at for _, newest in found), "each in its order, those between left out"


def test_report_bytes() -> None:
    assert encode_report(0x0102030405060708) == bytes(range(1, 9))


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.binary(max_size=60)), max_size=20), CUTS)
def test_transfers_cut_anywhere(transfers: list[tuple[int, bytes]], sizes: list[int]) -> None:
    data = b"".join(encode_header(at, len(body)) + body for at, body in transfers)
    reader = TransferReader()
    found = [transfer for part in cut(data, sizes) for transfer in reader.read_transfers(part)]
    assert found == [Transfer(*transfer) for transfer in transfers]


@pytest.mark.parametrize(
    ("log_offset", "size"), [(0, -1), (0, BODY_SIZE_MAX + 1), (-1, 0), (0, -(2**31))]
)
def test_transfers_that_cannot_be(log_offset: int, size: int) -> None:
    reader = TransferReader()
    with pytest.raises(RemoteProtocolError, match="transfer of"):
        list(reader.read_transfers(struct.pack(">qi", log_offset, size)))


def test_what_came_before_a_bad_transfer_counts() -> None:
    reader = TransferReader()
    found: list[Transfer] = []
    with pytest.raises(RemoteProtocolError):
        found.extend(reader.read_transfers(encode_header(7, 2) + b"ab" + encode_header(9, -1)))
    reader = TransferReader()
    taken = reader.read_transfers(encode_header(7, 2) + b"ab" + encode_header(9, -1))
    assert next(taken) == Transfer(7, b"ab")
