from __future__ import annotations

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.setting_facts import Setting, settings_of
from escrowmq.base.store_settings import StoreSettings

KNOWN = {
    setting.name: setting
    for table in (BrokerSettings, StoreSettings)
    for setting in settings_of(table)
}


def test_a_setting_knows_what_is_to_be_known_of_it() -> None:
    assert KNOWN["transactionCheckMax"] == Setting(
        name="transactionCheckMax",
        field="transaction_checks_max",
        default=15,
        holds="live",
        low=1,
        description="checks before a half message is given up",
    )
    assert KNOWN["fileReservedTime"].unit == "h"
    assert KNOWN["mappedFileSizeCommitLog"].unit == "bytes"


def test_what_holds_from_when() -> None:
    assert KNOWN["brokerName"].holds == "fixed"
    assert KNOWN["maxMessageSize"].holds == "restart"
    assert KNOWN["brokerPermission"].holds == "live"


def test_passwords_are_secret() -> None:
    assert {name for name, setting in KNOWN.items() if setting.is_secret} == {
        "initAuthenticationUser",
        "innerClientAuthenticationCredentials",
    }


def test_every_setting_says_what_it_does() -> None:
    assert [name for name, s in KNOWN.items() if not s.description and s.field != name] == []
