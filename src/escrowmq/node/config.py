"""Settings from the peer's properties files and from `--set`."""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from escrowmq.base.settings import BrokerSettings, NameServerSettings, StoreSettings
from escrowmq.errors import UsageError

S = TypeVar("S", bound=msgspec.Struct)

_SPAN: Final = re.compile(r"[0-9]{1,9}[smhd]")
_PORT: Final = re.compile(r"[0-9]{1,5}")
_PORT_MAX: Final = 65_535
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SEPARATOR: Final = re.compile(r"(?<!\\)(?:\\\\)*([ \t\f]*[=:][ \t\f]*|[ \t\f]+)")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


class NodeSettings(msgspec.Struct, kw_only=True):
    """What a process needs beside its cores' settings."""

    host: str = msgspec.field(default="", name="bindAddress")
    port: int = msgspec.field(default=0, name="listenPort")
    data: str = msgspec.field(default="", name="storePathRootDir")
    flush: str = msgspec.field(default="ASYNC_FLUSH", name="flushDiskType")
    role: str = msgspec.field(default="ASYNC_MASTER", name="brokerRole")
    idle_s: int = msgspec.field(default=120, name="serverChannelMaxIdleTimeSeconds")


def parse_properties_file(text: str) -> dict[str, str]:
    """Java's `.properties`: comments, continued lines, escapes; the last of a key wins.

    The peer keeps blanks behind a value and then takes the default (`a = 1 `) or false
    (`a = true `) without a word; here they are cut."""
    found: dict[str, str] = {}
    held = ""
    for raw in text.splitlines():
        line = raw.lstrip(" \t\f")
        if not held and (not line or line[0] in "#!"):
            continue
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            held += line[:-1]
            continue
        name, value = _split(held + line)
        found[name] = value
        held = ""
    if held:
        name, value = _split(held)
        found[name] = value
    return found


def _split(line: str) -> tuple[str, str]:
    match = _SEPARATOR.search(line)
    if match is None:
        return _unescape(line), ""
    return _unescape(line[: match.start(1)]), _unescape(line[match.end(1) :]).strip()


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(one, text)


def gather(file: str | None, pairs: list[str]) -> dict[str, str]:
    """All settings: those of the file, then those of `--set KEY=VALUE`."""
    found: dict[str, str] = {}
    if file is not None:
        try:
            found.update(parse_properties_file(Path(file).read_text(encoding="latin-1")))
        except OSError as error:
            raise UsageError(f"-c {file}: {error.strerror}; name a readable file") from error
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise UsageError(f"--set {pair}: KEY=VALUE is expected")
        found[name.strip()] = value.strip()
    return found


def convert(kind: type[S], found: dict[str, str], *, source: str) -> S:
    """The settings of one kind; UsageError names the source, the key and the value that is bad."""
    names = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    chosen: dict[str, object] = {}
    for name, value in found.items():
        field = names.get(name)
        if field is None:
            continue
        try:
            chosen[name] = msgspec.convert(_plain(value), field.type, strict=False)
        except msgspec.ValidationError as error:
            raise UsageError(f"{source}: {name}={value}: {error}") from error
    return msgspec.convert(chosen, kind)


def check_texts(settings: BrokerSettings, store: StoreSettings, *, source: str) -> None:
    """Settings whose form their type does not tell; UsageError says what is expected."""
    if not all(map(_SPAN.fullmatch, store.delay_levels.split())):
        raise UsageError(
            f"{source}: messageDelayLevel={store.delay_levels}: spans like 1s 5m 2h 1d are "
            "expected, blanks between"
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
            f"{source}: brokerIP1={settings.advertised_host}: an IP address is expected, which "
            "messages and message ids can hold"
        ) from error


def _plain(value: str) -> str:
    return value.lower() if value.lower() in ("true", "false") else value


def unknown_keys(found: dict[str, str]) -> list[str]:
    """Keys that nothing here reads; the peer has many that mean nothing to us."""
    known = {
        field.encode_name
        for kind in (BrokerSettings, StoreSettings, NameServerSettings, NodeSettings)
        for field in msgspec.structs.fields(kind)
    }
    return sorted(set(found) - known)


def memory_size() -> int:
    """RAM of this machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def store_settings(found: dict[str, str], node: NodeSettings, *, source: str) -> StoreSettings:
    """Settings of the store, with what only the machine knows."""
    if node.flush not in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        raise UsageError(
            f"{source}: flushDiskType={node.flush}: ASYNC_FLUSH or SYNC_FLUSH is expected"
        )
    settings = convert(StoreSettings, found, source=source)
    settings.is_sync_flush = node.flush == "SYNC_FLUSH"
    settings.memory_size = memory_size()
    return settings
