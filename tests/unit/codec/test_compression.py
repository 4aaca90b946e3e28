from __future__ import annotations

import gzip
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.fixed_limits import DECOMPRESSED_SIZE_MAX
from escrowmq.base.message import SysFlag
from escrowmq.codec.compression import FORMS, compress, decompress, size_until_error
from escrowmq.errors import RemoteProtocolError, UsageError

forms = pytest.mark.parametrize("form", sorted(FORMS))


@forms
def test_what_is_compressed_comes_back(form: str) -> None:
    @given(st.binary())
    def check(body: bytes) -> None:
        packed, flag = compress(body, form=form, level=5)
        assert flag == FORMS[form] | SysFlag.COMPRESSED
        assert decompress(packed, flag) == body

    check()


@forms
def test_a_body_cut_short_or_changed_is_told(form: str) -> None:
    packed, flag = compress(bytes(range(256)) * 20, form=form, level=5)
    for size in range(len(packed)):
        with pytest.raises(RemoteProtocolError):
            decompress(packed[:size], flag)
    with pytest.raises(RemoteProtocolError):
        decompress(b"nothing of the kind", flag)


@forms
def test_what_a_broken_body_costs_is_what_comes_before_it_breaks(form: str) -> None:
    whole = random.Random(1).randbytes(500_000) + bytes(500_000)
    packed, flag = compress(whole, form=form, level=5)
    assert size_until_error(b"nothing of the kind" * 1_000, flag, size_max=10**6) == 0
    assert size_until_error(packed, flag, size_max=1_000) == 1_000
    assert size_until_error(packed, flag, size_max=10**7) == len(whole)
    changed = bytearray(packed)
    changed[400_000:400_100] = bytes(100)
    for broken in (packed[:-1], packed[:300_000], bytes(changed)):
        size = size_until_error(broken, flag, size_max=10**7)
        assert 0 <= size <= len(whole)
        assert size > 250_000 or broken == changed


def test_gzip_is_measured_as_well() -> None:
    flag = SysFlag.COMPRESSED | FORMS["zlib"]
    assert size_until_error(gzip.compress(bytes(200_000))[:-4], flag, size_max=10**6) == 200_000


@forms
def test_a_bomb_is_not_unpacked(form: str) -> None:
    packed, flag = compress(bytes(DECOMPRESSED_SIZE_MAX + 1), form=form, level=1)
    with pytest.raises(RemoteProtocolError, match="decompresses to more"):
        decompress(packed, flag)


def test_old_clients_name_no_form_and_mean_zlib() -> None:
    assert decompress(zlib.compress(b"x"), SysFlag.COMPRESSED) == b"x"
    assert decompress(b"plain", 0x300) == b"plain"


def test_an_unknown_form_is_named() -> None:
    with pytest.raises(UsageError, match="lz4, zlib, zstd"):
        compress(b"x", form="rar", level=5)
