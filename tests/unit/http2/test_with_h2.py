"""The h2 package as a client of the connection."""

from __future__ import annotations

import random

import h2.config
import h2.connection
import h2.events
import pytest

from escrowmq.http2.connection import Http2Connection
from escrowmq.http2.events import StreamData

from .wire import REQUEST


@pytest.mark.parametrize("seed", range(5))
def test_h2_as_the_client_understands_all(seed: int) -> None:
    chance = random.Random(seed)
    config = h2.config.H2Configuration(client_side=True, header_encoding=None)
    client, server = h2.connection.H2Connection(config), Http2Connection()
    client.initiate_connection()
    said: dict[int, bytearray] = {}
    heard: dict[int, bytearray] = {}
    ended: set[int] = set()
    left: dict[int, bytes] = {}
    for _ in range(30):
        stream_id = client.get_next_available_stream_id()
        client.send_headers(stream_id, REQUEST)
        left[stream_id] = chance.randbytes(chance.choice((0, 10, 20_000, 300_000)))
        said[stream_id] = bytearray()
    sent = dict(left)
    while len(ended) < 30:
        for stream_id, data in list(left.items()):
            size = min(client.local_flow_control_window(stream_id), 16_384, len(data))
            client.send_data(stream_id, data[:size], end_stream=size == len(data))
            left[stream_id] = data[size:]
            if size == len(data):
                del left[stream_id]
        for event in server.receive(client.data_to_send(), 0):
            if isinstance(event, StreamData):
                said[event.stream_id] += event.data
                if event.is_end:
                    echo = bytes(said[event.stream_id])
                    server.send_data(
                        event.stream_id, headers=b"\x88", data=echo, trailers=b"\0\1x\1y"
                    )
        for answer in client.receive_data(b"".join(server.take_bytes())):
            if isinstance(answer, h2.events.DataReceived):
                heard.setdefault(answer.stream_id, bytearray()).extend(answer.data)
                client.acknowledge_received_data(answer.flow_controlled_length, answer.stream_id)
            elif isinstance(answer, h2.events.StreamEnded):
                ended.add(answer.stream_id)
            assert not isinstance(answer, h2.events.StreamReset | h2.events.ConnectionTerminated)
    assert {key: bytes(heard.get(key, b"")) for key in sent} == sent
    assert server.unsent_size == server.open_count == 0
