from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.nameserver_settings import NameServerSettings
from escrowmq.base.store_settings import StoreSettings
from escrowmq.errors import UsageError
from escrowmq.node.addresses import host_and_port, own_address, warn_of_open_access
from escrowmq.node.broker import read_broker_settings
from escrowmq.node.config import (
    NodeSettings,
    accounts_folder,
    convert_settings,
    gather_settings,
    memory_size,
    read_replica_settings,
    read_store_settings,
    unknown_keys,
)
from escrowmq.node.connection_settings import ConnectionSettings


def test_file_is_read_as_java_reads_it_but_for_blanks_behind_values(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_bytes(b"# a\na = 1 \nb:x\\\n  y\nregionId=\xe9\n")
    assert gather_settings(str(file), []) == {"a": "1", "b": "xy", "regionId": "é"}
    file.write_text("storePathRootDir=C:\\users\n")
    with pytest.raises(UsageError, match=r"broker\.conf: .*four hexadecimal digits"):
        gather_settings(str(file), [])


def test_the_mark_of_an_editor_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    """A broker whose file began with aclEnable=true had no access control."""
    file, tls = tmp_path / "broker.conf", tmp_path / "tls.properties"
    file.write_text(f"aclEnable=true\ntls.config.file={tls}\n", encoding="utf-8-sig")
    tls.write_text("tls.server.mode=disabled\n", encoding="utf-8-sig")
    found = gather_settings(str(file), [])
    assert (found["aclEnable"], found["tls.server.mode"]) == ("true", "disabled")


@pytest.mark.parametrize(
    ("key", "text"),
    [("diskMaxUsedSpaceRatio", "--5"), ("diskMaxUsedSpaceRatio", "²"), ("brokerId", "²")],
)
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
def test_what_is_no_number_is_refused_by_name(key: str, text: str, role: str) -> None:
    """It ended the command with a traceback."""
    found = {"brokerId": "1", "brokerRole": role, key: text}
    with pytest.raises(UsageError, match=key):
        read_broker_settings(found, source="f", name="a", name_servers=None, host="127.0.0.1")
    with pytest.raises(UsageError, match="HOST:PORT"):
        read_replica_settings(
            {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": "h:²"}, source="f"
        )


def test_pairs_of_the_command_line_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=a\nbrokerId=0\n")
    assert gather_settings(str(file), ["brokerName = b", "x=y=z"]) == {
        "brokerName": "b",
        "brokerId": "0",
        "x": "y=z",
    }
    with pytest.raises(UsageError, match="none"):
        gather_settings(str(tmp_path / "none.conf"), [])
    for pair in ("x", "=1"):
        with pytest.raises(UsageError, match="KEY=VALUE"):
            gather_settings(None, [pair])


def test_a_variable_wins_over_the_file_and_an_option_over_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=a\nbrokerId=0\nbrokerIP1=10.0.0.1\n")
    monkeypatch.setenv("ESCROWMQ_SET", "brokerName=b\n\n  brokerIP1 = 10.0.0.2 \n")
    assert gather_settings(str(file), ["brokerName=c"]) == {
        "brokerName": "c",
        "brokerId": "0",
        "brokerIP1": "10.0.0.2",
    }
    monkeypatch.setenv("ESCROWMQ_SET", "brokerName")
    with pytest.raises(UsageError, match=r"ESCROWMQ_SET brokerName: KEY=VALUE"):
        gather_settings(None, [])


def test_settings_are_typed_and_bad_ones_named() -> None:
    found = {"transactionTimeOut": "100", "traceOn": "False", "brokerName": "b"}
    settings = convert_settings(BrokerSettings, found, source="f")
    assert (settings.transaction_timeout_ms, settings.is_traced, settings.name) == (
        100,
        False,
        "b",
    )
    with pytest.raises(UsageError, match="f: transactionTimeOut=soon: "):
        convert_settings(BrokerSettings, {"transactionTimeOut": "soon"}, source="f")
    with pytest.raises(UsageError, match="f: diskMaxUsedSpaceRatio=99: "):
        convert_settings(StoreSettings, {"diskMaxUsedSpaceRatio": "99"}, source="f")


def test_flush_and_memory_are_those_of_the_process() -> None:
    store = read_store_settings({}, NodeSettings(flush="SYNC_FLUSH"), source="f")
    assert store.is_sync_flush
    assert store.memory_size == memory_size() > 0
    with pytest.raises(UsageError, match="flushDiskType=x"):
        read_store_settings({}, NodeSettings(flush="x"), source="f")


def test_every_key_of_ours_is_known_once_and_others_are_reported() -> None:
    keys = [
        name
        for kind in (BrokerSettings, StoreSettings, NameServerSettings, NodeSettings)
        for name in kind.__struct_encode_fields__
    ]
    assert len(keys) == len(set(keys))
    assert unknown_keys(dict.fromkeys(keys, "")) == []
    assert unknown_keys({"zzz": "", "aaa": "", "brokerName": ""}) == ["aaa", "zzz"]


def of(host: str = "127.0.0.1", **found: str) -> BrokerSettings:
    return read_broker_settings(found, source="f", name="n", name_servers=None, host=host)[0]


def test_broker_is_advertised_where_it_listens() -> None:
    assert of().advertised_host == "127.0.0.1"
    assert of("0.0.0.0").advertised_host == own_address()
    assert of("10.1.2.3").advertised_host == "10.1.2.3"
    assert of(brokerIP1="10.0.0.5").advertised_host == "10.0.0.5"
    assert (of().name, of(brokerName="b").name) == ("n", "b")


def test_a_broker_that_listens_on_a_name_is_advertised_by_its_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`--host localhost` was refused as a wrong brokerIP1, which nobody had set."""
    assert of("localhost").advertised_host == "127.0.0.1"
    assert of("::1").advertised_host == "::1"
    assert not caplog.records
    for host in ("[::1]", "no.such.name.invalid", "a" * 300):
        with pytest.raises(UsageError, match=r"cannot listen on .* a name of this machine"):
            of(host)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("brokerIP1", "nowhere"),
        ("messageDelayLevel", "1s x"),
        ("namesrvAddr", "host"),
        ("namesrvAddr", "host:0"),
        ("namesrvAddr", "127.0.0.1:9876;:1"),
        ("storeType", "defaultRocksDB"),
        ("enableDLegerCommitLog", "true"),
        ("enableControllerMode", "TRUE"),
        ("readOnlyCommitLogStorePaths", "/a"),
        ("storePathCommitLog", "/a,/b"),
        ("deleteWhen", "noon"),
        ("listenPort", "70000"),
        ("metricsPromExporterPort", "99999"),
    ],
)
def test_texts_that_cannot_be_are_named(key: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"f: {key}"):
        of(**{key: value})


def test_several_name_servers_may_be_named() -> None:
    assert of(namesrvAddr="127.0.0.1:9876; [::1]:9877;").name_servers


def test_preset_sets_what_nothing_else_sets() -> None:
    plain, preset = of(), of(escrowPreset="RocketMQ")
    assert (plain.counts_all_checks, plain.asks_origin_first, plain.mute_after) == (False, True, 3)
    assert (preset.counts_all_checks, preset.asks_origin_first, preset.mute_after) == (
        True, False, 0,
    )  # fmt: skip
    assert of(escrowPreset="RocketMQ", escrowMuteAfter="5").mute_after == 5
    with pytest.raises(UsageError, match="escrowPreset=Kafka"):
        of(escrowPreset="Kafka")


def test_accounts_lie_where_the_settings_say_or_the_peer_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    assert accounts_folder(NodeSettings(), data="store") == "store/config"
    monkeypatch.setenv("ROCKETMQ_HOME", "/opt/mq")
    assert accounts_folder(NodeSettings(), data="store") == "/opt/mq/conf"
    assert accounts_folder(NodeSettings(home="/srv/mq"), data="store") == "/srv/mq/conf"
    chosen = NodeSettings(home="/srv/mq", accounts="/etc/mq")
    assert accounts_folder(chosen, data="store") == "/etc/mq"


def test_settings_without_effect_are_told(caplog: pytest.LogCaptureFixture) -> None:
    of(transactionTimeout="5", brokerName="b", zzz="")
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == "f: unknown settings, without effect: transactionTimeout, zzz"


def test_a_word_that_cannot_be_is_told_with_those_that_can() -> None:
    with pytest.raises(UsageError, match="escrowPreset=Kafka: one of EscrowMQ, RocketMQ is"):
        of(escrowPreset="Kafka")
    with pytest.raises(UsageError, match="mode=on: one of disabled, permissive, enforcing is"):
        convert_settings(ConnectionSettings, {"tls.server.mode": "on"}, source="f")


def test_a_masters_id_is_0_and_a_slaves_its_own() -> None:
    assert of(brokerRole="SYNC_MASTER", brokerId="3").broker_id == 0
    assert of(brokerRole="SLAVE", brokerId="3").broker_id == 3


@pytest.mark.parametrize(
    ("key", "value", "name", "holds"),
    [
        ("diskMaxUsedSpaceRatio", "99", "disk_used_max_percent", 75),
        ("diskMaxUsedSpaceRatio", "5", "disk_used_max_percent", 75),
        ("diskSpaceWarningLevelRatio", "100", "disk_warning_percent", 90),
        ("diskSpaceCleanForciblyRatio", "-1", "disk_forcible_percent", 30),
        ("deleteWhen", "99", "delete_when", "99"),
        ("deleteWhen", "004", "delete_when", "004"),
    ],
)
def test_what_rocketmq_takes_though_it_cannot_be_is_taken_and_told(
    key: str, value: str, name: str, holds: object, caplog: pytest.LogCaptureFixture
) -> None:
    _, store, _ = read_broker_settings(
        {key: value}, source="f", name="n", name_servers=None, host="127.0.0.1"
    )
    assert getattr(store, name) == holds
    assert len(caplog.records) == 1
    assert f"f: {key}={value}" in caplog.text


def test_a_masters_id_is_0(caplog: pytest.LogCaptureFixture) -> None:
    assert of(brokerId="1").broker_id == 0
    assert "brokerId=1: a master's is 0" in caplog.text


def test_paths_that_rocketmq_does_not_read_are_told(caplog: pytest.LogCaptureFixture) -> None:
    of(storePathConsumeQueue="/a", storePathIndex="/b", abortFile="/c", storeCheckpoint="/d")
    assert caplog.text.count("has no effect, as with RocketMQ") == 4
    assert "not known" not in caplog.text


def test_an_address_on_which_nobody_listens_is_told(caplog: pytest.LogCaptureFixture) -> None:
    of("127.0.0.1", brokerIP1="127.0.0.1")
    of("0.0.0.0", brokerIP1="10.0.0.5")
    of("10.0.0.5", brokerIP1="203.0.113.7")  # behind a translation of addresses
    assert "brokerIP1" not in caplog.text
    of("127.0.0.1", brokerIP1="10.0.0.5")
    assert (
        "brokerIP1=10.0.0.5 is registered for clients, but the broker listens on 127.0.0.1 alone"
        in caplog.text
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "", "10.0.0.5", "::", "broker.example"])
def test_a_broker_that_is_everybodys_beyond_its_machine_says_so(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_open_access(host, has_accounts=True)
    for near in ("127.0.0.1", "::1", "localhost"):
        warn_of_open_access(near, has_accounts=False)
    assert caplog.text == ""
    warn_of_open_access(host, has_accounts=False)
    assert "there is no access control" in caplog.text


def test_an_address_of_version_6_stands_in_brackets() -> None:
    assert (host_and_port("::1", 5), host_and_port("127.0.0.1", 5)) == ("[::1]:5", "127.0.0.1:5")
