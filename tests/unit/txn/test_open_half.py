from __future__ import annotations

import pytest

from escrowmq.codec.properties import decode_properties
from escrowmq.txn.half_records import make_final
from escrowmq.txn.open_half import OpenHalf

from .ground import Ground


def kept_half(**properties: str) -> OpenHalf:
    """A half that is cached."""
    ground = Ground()
    ground.prepare(b"body", TAGS="a", **properties)
    half = ground.engine.halves.open_half(0)
    assert half is not None
    return half


def test_final_of_a_half_has_the_half_s_bytes() -> None:
    half = kept_half()
    final = make_final(half.message)
    assert final is not None
    assert half.encoded_properties_for(final) is half.encoded


def test_final_of_a_half_with_an_account_has_its_bytes_without_the_mark() -> None:
    half = kept_half(escrowOwner="mark")
    final = make_final(half.message)
    assert final is not None
    assert set(half.message.properties) - set(final.properties) == {"escrowOwner"}
    assert decode_properties(half.encoded_properties_for(final) or b"") == final.properties
    final.properties["TAGS"] = "b"
    assert half.encoded_properties_for(final) is None


def test_message_with_other_properties_has_bytes_of_its_own() -> None:
    half = kept_half()
    final = make_final(half.message)
    assert final is not None
    less = {name: text for name, text in final.properties.items() if name != "TAGS"}
    for properties in (less, {**final.properties, "more": "x"}, dict(final.properties)):
        final.properties = properties
        assert half.encoded_properties_for(final) is None


def test_message_that_lacks_more_than_the_mark_or_keeps_it_has_bytes_of_its_own() -> None:
    half = kept_half(escrowOwner="mark")
    final = make_final(half.message)
    assert final is not None
    lacks_more = {name: text for name, text in final.properties.items() if name != "TAGS"}
    own = dict(half.message.properties)
    for properties in (lacks_more, {**lacks_more, "escrowOwner": "mark"}, own):
        final.properties = properties
        assert half.encoded_properties_for(final) is None


@pytest.mark.parametrize("properties", [{}, {"escrowOwner": "mark"}])
def test_half_that_is_not_cached_has_no_bytes(properties: dict[str, str]) -> None:
    ground = Ground()
    message = ground.prepare(b"body", **properties)
    ground.engine.halves.recent.clear()
    half = ground.engine.halves.open_half(0)
    assert half is not None
    final = make_final(message)
    assert final is not None
    assert half.encoded_properties_for(final) is None
