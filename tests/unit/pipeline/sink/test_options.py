"""The sink's options as a whole."""

from __future__ import annotations

import pytest

from escrowmq.errors import UsageError
from escrowmq.pipeline.sink.options import SinkOptions, parse_sink_options
from escrowmq.txn.decisions import UNNAMED

LEAST = {"nameServer": "h:1", "topic": "t"}
EXACT = {"transactional": "true", "producerGroup": "g"}


def parsed(
    options: dict[str, str] | None = None,
    *,
    is_stream: bool = False,
    columns: tuple[str, ...] = ("body",),
) -> SinkOptions:
    return parse_sink_options(LEAST | (options or {}), is_stream=is_stream, columns=columns)


def test_defaults() -> None:
    found = parsed()
    assert not found.is_transactional
    assert found.sending.batch_count == 32
    assert found.sending.at_once == 64
    assert found.timeout_ms == 900_000
    assert parsed({"bodySizeMax": "64k"}).sending.batch_size == 65_536


def test_a_batch_write_has_a_name_of_its_own_or_the_given_one() -> None:
    assert parsed(EXACT).batch_epoch != parsed(EXACT).batch_epoch
    assert UNNAMED.fullmatch(parsed(EXACT).batch_epoch.removesuffix("/0")), "as the broker knows it"
    named = parsed(EXACT | {"txnAppId": "job", "txnVersion": "3"})
    assert named.batch_epoch == "job/3"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": ""}, "neither an option `topic` nor a column"),
        ({"topic": "a b"}, "has invalid characters"),
        ({"transactional": "true"}, "needs producerGroup"),
        ({"orderBy": "customer"}, "is not a column; there are body"),
        ({"txnAppId": "a", **EXACT}, "belong together"),
        ({"txnVersion": "1", **EXACT}, "belong together"),
        ({"txnAppId": "a", "txnVersion": "1"}, "need transactional=true"),
        ({"onStockBroker": "hope"}, "one of refuse, at-least-once"),
        ({"topicc": "t"}, "is topic meant"),
        ({"batchBytes": "8m"}, "is more than bodySizeMax=4194304; .* raise it there and here"),
    ],
)
def test_what_is_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        parsed(options)


def test_what_a_transaction_cannot_have() -> None:
    with pytest.raises(UsageError, match="the column deliverTime and transactional=true"):
        parsed(EXACT, columns=("body", "deliverTime"))


def test_a_transactional_stream_keeps_its_broker() -> None:
    with pytest.raises(UsageError, match="checkpointLocation as an option"):
        parsed(EXACT, is_stream=True)
    parsed(EXACT | {"broker": "b"}, is_stream=True)
    parsed(EXACT | {"checkpointLocation": "/x", "outputMode": "append"}, is_stream=True)
    with pytest.raises(UsageError, match=r"are for df\.write"):
        parsed(EXACT | {"broker": "b", "txnAppId": "a", "txnVersion": "1"}, is_stream=True)
