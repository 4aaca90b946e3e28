"""Settings from RocketMQ's properties files and from `--set`."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar, get_args, get_origin

import msgspec

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.delay_levels import is_valid_levels_text
from escrowmq.base.group_settings import GroupSettings
from escrowmq.base.nameserver_settings import NameServerGuardSettings, NameServerSettings
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.base.setting_facts import fields_of, parse_setting_value, unit_in_words
from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec.java_properties import ConfError
from escrowmq.errors import UsageError
from escrowmq.node.connection_settings import (
    ConnectionSettings,
    read_properties_file,
    with_tls_file,
)
from escrowmq.node.refused_settings import KEYS_CHECKED_HERE, is_whole_number

_log = logging.getLogger(__name__)

S = TypeVar("S", bound=msgspec.Struct)

_PORT: Final = re.compile(r"[0-9]{1,5}")
_PORT_MAX: Final = 65_535


SET_ENV: Final = "ESCROWMQ_SET"
"""Environment variable with settings, one KEY=VALUE a line; for images, whose users set variables
rather than files."""

_REPLICATION_KEYS: Final = ("brokerRole", "haListenPort", "inSyncReplicas")
"""The settings with which a broker opens its replication port. (RocketMQ always opens it.)"""

_SPIN_MAX_US: Final = 1_000
Port = Annotated[int, msgspec.Meta(ge=0, le=_PORT_MAX)]


class NodeSettings(msgspec.Struct, kw_only=True):
    """Settings of a broker process besides those of its cores."""

    host: str = msgspec.field(default="", name="bindAddress")
    port: Port = msgspec.field(default=0, name="listenPort")
    grpc_port: Annotated[
        int,
        msgspec.Meta(
            ge=-1,
            le=_PORT_MAX,
            description="port for clients of RocketMQ 5; 0: any free one, -1: none; 8081 for "
            "`serve` if it is not set",
        ),
    ] = msgspec.field(default=-1, name="grpcServerPort")
    http_port: Annotated[
        int,
        msgspec.Meta(
            ge=-1,
            le=_PORT_MAX,
            description="port of the console, its API, /healthz, /readyz and /metrics; 0: any "
            "free one, -1: none; 8082 for `serve` if it is not set",
        ),
    ] = msgspec.field(default=-1, name="escrowHttpPort")
    data: str = msgspec.field(default="", name="storePathRootDir")
    log: Annotated[
        str, msgspec.Meta(description="folder of the log; by default commitlog in the data folder")
    ] = msgspec.field(default="", name="storePathCommitLog")
    flush: str = msgspec.field(default="ASYNC_FLUSH", name="flushDiskType")
    exporter: str = msgspec.field(default="DISABLE", name="metricsExporterType")
    exporter_host: str = msgspec.field(default="", name="metricsPromExporterHost")
    exporter_port: Port = msgspec.field(default=5557, name="metricsPromExporterPort")
    names_exporter_port: Annotated[
        int,
        msgspec.Meta(ge=-1, le=_PORT_MAX, description="metrics port of the name server; -1: none"),
    ] = msgspec.field(default=-1, name="escrowNameServerMetricsPort")
    otlp: Annotated[
        str,
        msgspec.Meta(
            description="URL to which metrics are sent by OTLP/HTTP, such as http://HOST:4318; "
            "if empty, the standard variables OTEL_EXPORTER_OTLP_... apply"
        ),
    ] = msgspec.field(default="", name="escrowOtlpEndpoint")
    idle_s: int = msgspec.field(default=120, name="serverChannelMaxIdleTimeSeconds")
    spin_us: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            le=_SPIN_MAX_US,
            description="how long the broker polls for the next request before it sleeps, if the "
            "previous one came at once: less latency for more CPU; 0: never",
        ),
    ] = msgspec.field(default=0, name="escrowSpinMicros")
    accounts: Annotated[
        str,
        msgspec.Meta(description="folder of plain_acl.yml and acl/; rocketmqHome/conf by default"),
    ] = msgspec.field(default="", name="escrowAclFolder")
    home: str = msgspec.field(default="", name="rocketmqHome")


def gather_settings(file: str | None, pairs: list[str]) -> dict[str, str]:
    """Return all settings: those of the file, overridden by `--set KEY=VALUE`.

    RocketMQ keeps trailing blanks of a value and then silently uses the default (`a = 1 `) or false
    (`a = true `); here they are stripped."""
    found: dict[str, str] = {}
    if file is not None:
        try:
            named = read_properties_file(file)
            found.update({name: value.strip() for name, value in named.items()})
        except OSError as error:
            raise UsageError(f"-c {file}: {error.strerror}; name a readable file") from error
        except ConfError as error:
            raise UsageError(f"-c {file}: {error}") from error
    lines = filter(None, map(str.strip, os.environ.get(SET_ENV, "").splitlines()))
    for source, several in ((SET_ENV, lines), ("--set", pairs)):
        for pair in several:
            name, separator, value = pair.partition("=")
            if not separator or not name.strip():
                raise UsageError(f"{source} {pair}: KEY=VALUE is expected")
            found[name.strip()] = value.strip()
    return with_tls_file(found)


def convert_settings(kind: type[S], found: dict[str, str], *, source: str) -> S:
    """Convert texts to settings of one kind; raises UsageError with the source, the key and the bad
    value."""
    names = {field.encode_name: field for field in fields_of(kind)}
    chosen: dict[str, object] = {}
    for name, value in found.items():
        field = names.get(name)
        if field is None:
            continue
        try:
            chosen[name] = parse_setting_value(value, field.type)
        except msgspec.ValidationError as error:
            raise UsageError(
                f"{source}: {name}={value}: {_allowed_values(field) or error}"
            ) from error
    return msgspec.convert(chosen, kind)


def _allowed_values(field: msgspec.structs.FieldInfo) -> str:
    """Describe a setting's allowed values: one of a few words, or a number with its unit; empty for
    others."""
    kind, meta = field.type, msgspec.Meta()
    while get_origin(kind) is Annotated:
        kind, *metas = get_args(kind)
        meta = next((each for each in metas if isinstance(each, msgspec.Meta)), meta)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))} is expected"
    if kind not in (int, float):
        return ""
    number = "a whole number" if kind is int else "a number"
    unit = unit_in_words(field.name)
    bounds = [
        f"{word} {limit}"
        for word, limit in (("from", meta.ge), ("to", meta.le))
        if limit is not None
    ]
    example = f", such as {field.default}" if isinstance(field.default, int | float) else ""
    said = " ".join([number, *([f"of {unit}"] if unit else []), *bounds])
    return f"{said} is expected{example}"


def check_text_settings(settings: BrokerSettings, store: StoreSettings, *, source: str) -> None:
    """Validate settings that are texts of a certain form; raises UsageError with what is
    expected."""
    if not is_valid_levels_text(store.delay_levels):
        raise UsageError(
            f"{source}: messageDelayLevel={store.delay_levels}: durations like 1s 5m 2h 1d, "
            "separated by blanks, are expected"
        )
    for address in filter(None, (part.strip() for part in settings.name_servers.split(";"))):
        host, _, port = address.rpartition(":")
        if not host or not _PORT.fullmatch(port) or not 0 < int(port) <= _PORT_MAX:
            raise UsageError(
                f"{source}: namesrvAddr={address}: HOST:PORT is expected, the port from 1 to "
                f"{_PORT_MAX}"
            )
    try:
        ipaddress.ip_address(settings.advertised_host)
    except ValueError as error:
        raise UsageError(
            f"{source}: brokerIP1={settings.advertised_host}: an IP address is expected, "
            "because it becomes part of messages and message ids"
        ) from error


def unknown_keys(found: dict[str, str]) -> list[str]:
    """Return the keys that no setting has; RocketMQ has many that mean nothing here."""
    known = {
        field.encode_name
        for kind in (
            BrokerSettings,
            StoreSettings,
            ReplicaSettings,
            GroupSettings,
            NameServerSettings,
            NameServerGuardSettings,
            NodeSettings,
            ConnectionSettings,
        )
        for field in fields_of(kind)
    }
    return sorted(set(found) - known - KEYS_CHECKED_HERE)


def warn_of_unknown_keys(found: dict[str, str], *, source: str) -> None:
    """Log a warning for keys that no setting has."""
    unknown = unknown_keys(found)
    if unknown:
        _log.warning("%s: unknown settings, without effect: %s", source, ", ".join(unknown))


def accounts_folder(node: NodeSettings, *, data: str) -> str:
    """Return the folder with plain_acl.yml and the folder `acl`: the configured one, otherwise
    `conf` of RocketMQ's home if there is one, otherwise `config` of the data folder."""
    home = node.home or os.environ.get("ROCKETMQ_HOME", "")
    return node.accounts or str(Path(home) / "conf" if home else Path(data) / "config")


def memory_size() -> int:
    """Return this machine's RAM in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def read_store_settings(found: dict[str, str], node: NodeSettings, *, source: str) -> StoreSettings:
    """Return the settings of the store, with values that depend on the machine."""
    if node.flush not in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        raise UsageError(
            f"{source}: flushDiskType={node.flush}: ASYNC_FLUSH or SYNC_FLUSH is expected"
        )
    settings = convert_settings(StoreSettings, found, source=source)
    settings.is_sync_flush = node.flush == "SYNC_FLUSH"
    settings.memory_size = memory_size()
    return settings


def read_replica_settings(found: dict[str, str], *, source: str) -> ReplicaSettings | None:
    """Return the settings of replication; None for a broker without replicas. Raises UsageError for
    settings that contradict each other."""
    settings = convert_settings(ReplicaSettings, found, source=source)
    if settings.is_slave:
        if not is_whole_number(found.get("brokerId", "")) or int(found["brokerId"]) <= 0:
            raise UsageError(
                f"{source}: brokerRole=SLAVE needs a brokerId of 1 or more: 0 is the master"
            )
        host, _, port = settings.ha_master.rpartition(":")
        if settings.ha_master and not (host and _PORT.fullmatch(port)):
            raise UsageError(
                f"{source}: haMasterAddress={settings.ha_master}: HOST:PORT of the master's "
                "haListenPort is expected"
            )
    return settings if any(key in found for key in _REPLICATION_KEYS) else None


_DECIDED: Final = ("brokerRole", "brokerId", "inSyncReplicas", "haMasterAddress")


def read_group_settings(
    found: dict[str, str], *, authority: str | None, source: str
) -> GroupSettings | None:
    """Return the settings of a member of a group; None for a broker without an authority. Raises
    UsageError for settings that contradict each other."""
    settings = convert_settings(GroupSettings, found, source=source)
    settings.authority = authority or settings.authority
    if not settings.authority:
        return None
    for name in _DECIDED:
        if name in found:
            raise UsageError(
                f"{source}: {name}={found[name]}: in a group the authority decides which "
                "member is the master, and senders wait for the members in sync; leave "
                f"{name} out"
            )
    return settings
