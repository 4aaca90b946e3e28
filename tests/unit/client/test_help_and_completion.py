from __future__ import annotations

import inspect
import pydoc

import pytest

import escrowmq
from escrowmq import aio
from escrowmq.client.client_settings import ClientOptions
from escrowmq.client.consumer_settings import ConsumerOptions
from escrowmq.client.producer_settings import ProducerOptions


@pytest.mark.parametrize(
    ("client", "options"),
    [
        (escrowmq.Producer, ProducerOptions),
        (aio.Producer, ProducerOptions),
        (escrowmq.Consumer, ConsumerOptions),
        (aio.Consumer, ConsumerOptions),
    ],
)
def test_help_shows_every_setting_with_its_default(
    client: type, options: type[ProducerOptions | ConsumerOptions]
) -> None:
    shown = inspect.signature(client).parameters
    assert list(shown)[:2] == ["name_servers", "group"]
    assert {*options.__struct_fields__, *ClientOptions.__struct_fields__} <= {*shown}
    assert "settings" not in shown
    assert shown["group"].default is inspect.Parameter.empty
    assert shown["request_timeout_ms"].default == 3_000
    told = pydoc.render_doc(client).replace("'int'", "int")  # without quotes from Python 3.14 on
    assert "request_timeout_ms: int = 3000" in told


def test_completion_leaves_out_what_is_for_other_parts_of_the_sdk() -> None:
    producer = aio.Producer("127.0.0.1:1", group="g")
    consumer = aio.Consumer("127.0.0.1:1", group="g", topic="T")
    for client, hidden in ((producer, "try_send"), (consumer, "take_undelivered_into")):
        assert hasattr(client, hidden)
        assert hidden not in dir(client)
        assert {"open", "close", "group"} <= {*dir(client)}
    delivery = escrowmq.Delivery(topic="T", body=b"x")
    assert not {"desk", "ticket", "portal"} & {*dir(delivery)}
    assert {"ack", "body", "queue"} <= {*dir(delivery)}


def test_a_client_that_could_not_be_made_leaves_no_second_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(TypeError):
        escrowmq.Consumer("T", "127.0.0.1:1")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        escrowmq.Producer("T", "127.0.0.1:1")  # type: ignore[call-arg]
    assert capsys.readouterr().err == ""
