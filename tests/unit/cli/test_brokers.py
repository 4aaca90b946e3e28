from __future__ import annotations

from escrowmq.cli.brokers import _broker_row
from escrowmq.cli.main import build_parser
from escrowmq.client.admin.brokers import BrokerInfo


def test_a_broker_is_registered_or_gone_since_a_time() -> None:
    here = BrokerInfo(name="b", cluster="c", id=0, address="h:1", build="0.1.0+g1234abcd")
    assert _broker_row(here)[-2:] == ("0.1.0+g1234abcd", "registered")
    gone = BrokerInfo(name="b", cluster="c", id=0, address="h:1", gone_ms=1_700_000_000_000)
    assert _broker_row(gone)[-1] == "gone since 2023-11-14T22:13:20.000Z"
    gone.was_stopped = True
    assert _broker_row(gone)[-1] == "gone since 2023-11-14T22:13:20.000Z (stopped)"


def test_what_is_shown_is_little_unless_all_is_asked_for() -> None:
    read = build_parser().parse_args
    assert not read(["broker", "show", "--name", "b"]).all
    assert read(["broker", "show", "--name", "b", "--all"]).all
    assert read(["broker", "config", "--name", "b", "--changed"]).changed
