from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec.ids import format_host, offset_id, pack_host, parse_offset_id, unpack_host


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6), st.integers(0, 65_535), st.integers(0, 1 << 62))
def test_hosts_and_offset_ids_are_read_as_written(host: object, port: int, offset: int) -> None:
    packed = pack_host(str(host), port)
    assert unpack_host(packed)[1] == port
    assert pack_host(*unpack_host(packed)) == packed
    text = offset_id(packed, offset)
    assert len(text) in (32, 56)
    assert parse_offset_id(text) == (packed, offset)


def test_offset_id_is_that_of_the_peer() -> None:
    packed = pack_host("127.0.0.2", 10_747)
    assert offset_id(packed, 423) == "7F000002000029FB00000000000001A7"
    assert format_host(packed) == "127.0.0.2:10747"
    assert pack_host("::ffff:127.0.0.2", 1) == pack_host("127.0.0.2", 1)
    assert len(pack_host("fe80::1%eth0", 1)) == 20
