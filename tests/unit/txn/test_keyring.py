from __future__ import annotations

import hashlib
import hmac
import json
import random
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec.signed_id import (
    MAC_SIZE,
    SignedId,
    decode_signed_id,
    encode_signed_id,
    pack_signed_id,
)
from escrowmq.errors import UsageError
from escrowmq.txn.keyring import Keyring

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


def keyring(seed: int = 0) -> Keyring:
    found = Keyring(
        random.Random(seed), lasting_ms=lambda: 72 * HOUR_MS, rotation_ms=lambda: 720 * HOUR_MS
    )
    found.rotate(NOW_MS)
    return found


def sign(keys: Keyring, now_ms: int = NOW_MS) -> str:
    return keys.sign(
        queue_offset=5, log_offset=900, unique_key="K", broker_name="broker-é", now_ms=now_ms
    )


@given(st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 63) - 1), st.text("ab-é", min_size=1))
def test_id_says_what_was_signed(queue_offset: int, log_offset: int, name: str) -> None:
    keys = keyring()
    text = keys.sign(
        queue_offset=queue_offset,
        log_offset=log_offset,
        unique_key="K",
        broker_name=name,
        now_ms=NOW_MS,
    )
    expires_s = (NOW_MS + 72 * HOUR_MS) // 1000
    found = keys.verify_id(text, broker_name=name, now_ms=NOW_MS)
    assert found == SignedId(
        key_number=1,
        queue_offset=queue_offset,
        log_offset=log_offset,
        message_crc=zlib.crc32(b"K"),
        expires_s=expires_s,
        broker_name=name,
    )
    assert found.is_id_of("K")
    assert not found.is_id_of("L")
    assert decode_signed_id(text)[0] == found
    assert text.isascii()
    assert not set(text) & set("+/=")


@given(st.data())
def test_changed_id_is_refused(data: st.DataObject) -> None:
    keys = keyring()
    text = sign(keys)
    at = data.draw(st.integers(0, len(text) - 2))
    other = data.draw(st.sampled_from("ABab09-_").filter(lambda c: c != text[at]))
    with pytest.raises(UsageError):
        keys.verify_id(text[:at] + other + text[at + 1 :], broker_name="broker-é", now_ms=NOW_MS)


@given(st.text(max_size=700) | st.text("ABCabc-_", min_size=50, max_size=80))
def test_whatever_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        keyring().verify_id(text, broker_name="b", now_ms=NOW_MS)


def test_id_is_of_one_broker_one_store_and_a_time() -> None:
    keys = keyring()
    text = sign(keys)
    for name in ("aaa", "other"):
        with pytest.raises(UsageError, match="send it there"):
            keys.verify_id(text, broker_name=name, now_ms=NOW_MS)
    keys.verify_id(text, broker_name="broker-é", now_ms=NOW_MS + 72 * HOUR_MS)
    with pytest.raises(UsageError, match="not signed by this broker"):
        keyring(seed=1).verify_id(text, broker_name="broker-é", now_ms=NOW_MS)
    with pytest.raises(UsageError, match="expired 1 s ago"):
        keys.verify_id(text, broker_name="broker-é", now_ms=NOW_MS + 72 * HOUR_MS + 1000)


@pytest.mark.parametrize("form", [0, 2])
def test_id_of_another_form_is_refused_although_its_key_is_ours(form: int) -> None:
    keys = keyring()
    (key,) = keys._keys.values()
    packed = pack_signed_id(msgspec.structs.replace(decode_signed_id(sign(keys))[0], form=form))
    text = encode_signed_id(packed, hmac.digest(key.secret, packed, hashlib.sha256)[:MAC_SIZE])
    with pytest.raises(UsageError, match="not signed by this broker"):
        keys.verify_id(text, broker_name="broker-é", now_ms=NOW_MS)


def test_keys_survive_in_their_file() -> None:
    keys = keyring()
    text = sign(keys)
    again = Keyring(
        random.Random(9), lasting_ms=lambda: 72 * HOUR_MS, rotation_ms=lambda: 720 * HOUR_MS
    )
    assert again.is_rotation_due(NOW_MS)
    again.load(keys.content_to_save())
    assert not again.is_rotation_due(NOW_MS)
    assert again.verify_id(text, broker_name="broker-é", now_ms=NOW_MS).queue_offset == 5
    again.load(None)
    with pytest.raises(UsageError, match="escrowKeys"):
        again.load(b"{")


def test_old_key_goes_when_its_last_id_has_run_out() -> None:
    keys = keyring()
    text = sign(keys)
    assert keys.is_rotation_due(NOW_MS + 720 * HOUR_MS)
    later_ms = NOW_MS + HOUR_MS
    for number in range(2, 9):
        assert keys.rotate(later_ms) == number
    assert keys.rotate(later_ms + 72 * HOUR_MS) == 9
    assert keys.verify_id(text, broker_name="broker-é", now_ms=later_ms).queue_offset == 5
    assert keys.rotate(later_ms + 73 * HOUR_MS) == 10
    with pytest.raises(UsageError, match="key that was removed"):
        keys.verify_id(text, broker_name="broker-é", now_ms=later_ms)


def test_clock_that_is_days_ahead_for_a_while_takes_no_key_away() -> None:
    keys = keyring()
    text = sign(keys)
    for days in range(1, 8):
        keys.rotate(NOW_MS + days * 30 * 24 * HOUR_MS)
    assert keys.verify_id(text, broker_name="broker-é", now_ms=NOW_MS).queue_offset == 5
    keys.rotate(NOW_MS + 300 * 24 * HOUR_MS)
    with pytest.raises(UsageError, match="key that was removed"):
        keys.verify_id(text, broker_name="broker-é", now_ms=NOW_MS)
    assert len(json.loads(keys.content_to_save())["keys"]) == 8


def test_key_numbers_are_used_again_after_many_rotations() -> None:
    keys = keyring()
    for _ in range(300):
        number = keys.rotate(NOW_MS)
    assert number == 301 - 255
    assert keys.verify_id(sign(keys), broker_name="broker-é", now_ms=NOW_MS).log_offset == 900
