"""Properties that may be stored as they were received."""

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec.plain_properties import PlainProperties
from escrowmq.codec.properties import decode_properties, encode_properties

NAMES = st.sampled_from(["UNIQ_KEY", "TAGS", "KEYS", "x", "y", "DELAY", "TRAN_MSG", "PGROUP"])


@given(st.lists(st.tuples(NAMES, st.sampled_from(["", "a", "b\x01", "\x02", "c d", "ü"]))))
def test_properties_that_are_read_are_those_that_are_stored(pairs: list[tuple[str, str]]) -> None:
    encoded = "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
    found = PlainProperties({"DELAY", "TRAN_MSG"}, {"DELAY"}).read(encoded)
    if found is None:
        return
    plan, fields = found
    texts = [field.decode() for field in fields]
    properties = decode_properties(encoded)
    assert dict(zip(texts[::2], texts[1::2], strict=True)) == properties
    assert encode_properties(properties) == encoded
    assert texts[plan.key] == properties["UNIQ_KEY"]
    assert "DELAY" not in properties
    assert ("TRAN_MSG" in properties) == (plan.is_half >= 0)
