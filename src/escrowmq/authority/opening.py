"""Opens an authority from its address: `etcd://host:port,host:port/prefix`."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote

import msgspec

from escrowmq.authority.engine import AuthorityEngine
from escrowmq.authority.engine_authority import EngineAuthority
from escrowmq.authority.http import ServerAddress
from escrowmq.base.authority import Authority
from escrowmq.base.extras import require_extra
from escrowmq.errors import UsageError

PREFIX: Final = "escrowmq"
TIMEOUT_S: Final = 2.0
TIMEOUT_OF_SEVERAL_S: Final = 1.0
"""The timeout in seconds if there are several servers. It is shorter than for one, so that the next
server is tried sooner."""
_TIMEOUTS_S: Final = (0.05, 60.0)
_PORT_MAX: Final = 65_535
_HTTPS_PORT: Final = 443

ENGINES: Final = (
    "etcd://HOST:PORT[,HOST:PORT...][/PREFIX]",
    "etcds://... (TLS)",
    "s3://BUCKET[/PREFIX]",
    "kubernetes://",
)
POD_FILES: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The files that Kubernetes mounts into every pod."""
_NAME: Final = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class AddressParts(msgspec.Struct, frozen=True):
    """The parts of an authority's address. `options` has the options that were not read yet."""

    scheme: str
    account: tuple[str, str] | None
    servers_text: str
    """The part between the account and the path: the servers; for engines without servers, what
    they have instead."""
    path: str
    """The path, without slashes at its ends."""
    options: dict[str, str]

    def take_option(self, name: str, default: str = "") -> str:
        """Remove and return an option. Options that nobody takes are unknown, and are refused in
        the end."""
        return self.options.pop(name, default)

    def hosts(self, default_port: int) -> list[ServerAddress]:
        """Return the servers. Raises UsageError for an invalid one."""
        return [_parse_host(text, default_port) for text in self.servers_text.split(",")]

    def timeout_s(self, default_s: float) -> float:
        """Return the option `timeout` in seconds. Raises UsageError if it is invalid."""
        text = self.take_option("timeout", str(default_s))
        lowest, highest = _TIMEOUTS_S
        try:
            timeout_s = float(text)
        except ValueError:
            timeout_s = -1.0
        if not lowest <= timeout_s <= highest:
            raise UsageError(
                f"authority: timeout={text!r}; {lowest:g} to {highest:g} seconds are allowed"
            )
        return timeout_s


def open_authority(address: str) -> Authority:
    """Make an authority from its address, without connecting. Raises UsageError for an invalid
    address; the error shows no password."""
    parts = _split_address(address)
    maker = _MAKERS.get(parts.scheme)
    if maker is None:
        raise UsageError(
            f"authority: {parts.scheme!r} is no kind of engine; " + " or ".join(ENGINES)
        )
    engine = maker(parts)
    if parts.options:
        raise UsageError(f"authority: {parts.scheme} has no option {', '.join(parts.options)}")
    return EngineAuthority(engine)


def _split_address(address: str) -> AddressParts:
    scheme, found, rest = address.partition("://")
    if not found:
        raise UsageError("authority: an address is expected: " + " or ".join(ENGINES))
    rest, _, query = rest.partition("?")
    place, _, path = rest.partition("/")
    account_text, has_account, place = place.rpartition("@")
    user, _, password = account_text.partition(":")
    account = (unquote(user), unquote(password)) if has_account else None
    options = dict(parse_qsl(query, keep_blank_values=True))
    return AddressParts(scheme, account, place, unquote(path).strip("/"), options)


def _parse_host(text: str, default_port: int) -> ServerAddress:
    host, colon, port = text.rpartition(":")
    if text.endswith("]") or not colon:
        host, port = text, str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) <= _PORT_MAX:
        raise UsageError(f"authority: {text!r} is not HOST:PORT")
    return ServerAddress(host, int(port))


def _make_etcd_engine(parts: AddressParts) -> AuthorityEngine:
    from escrowmq.authority import etcd

    hosts = parts.hosts(etcd.PORT)
    return etcd.EtcdEngine(
        hosts,
        parts.path or PREFIX,
        timeout_s=parts.timeout_s(TIMEOUT_OF_SEVERAL_S if hosts[1:] else TIMEOUT_S),
        account=_read_account(parts),
        tls=_make_tls_context(parts) if parts.scheme == "etcds" else None,
    )


def _make_s3_engine(parts: AddressParts) -> AuthorityEngine:
    require_extra("s3", "obstore")
    from escrowmq.authority import s3

    if not parts.servers_text or parts.account is not None:
        raise UsageError(
            "authority: s3://BUCKET/PREFIX is expected; credentials are read from "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from the machine's role"
        )
    return s3.S3Engine(
        parts.servers_text,
        parts.path or PREFIX,
        timeout_s=parts.timeout_s(TIMEOUT_S),
        endpoint=parts.take_option("endpoint"),
        region=parts.take_option("region"),
    )


def _make_kubernetes_engine(parts: AddressParts) -> AuthorityEngine:
    """Make the Kubernetes engine. In a pod, address, account and namespace are found without
    options."""
    from escrowmq.authority import kubernetes

    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    place = parts.servers_text or f"{host}:{os.environ.get('KUBERNETES_SERVICE_PORT', '')}"
    if place == ":":
        raise UsageError(
            "authority: kubernetes:// without an address is for pods; elsewhere "
            "kubernetes://HOST:PORT/NAMESPACE?token=FILE&ca=FILE is expected"
        )
    namespace, _, prefix = parts.path.partition("/")
    try:
        namespace = namespace or (POD_FILES / "namespace").read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise UsageError(f"authority: no namespace is given, and {error}") from error
    for name in (namespace, prefix or PREFIX):
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"authority: {name!r} is not a valid name in Kubernetes: 1 to 63 of a-z, 0-9 and -"
            )
    parts.options.setdefault("ca", str(POD_FILES / "ca.crt"))
    return kubernetes.KubernetesEngine(
        _parse_host(place, _HTTPS_PORT),
        namespace,
        prefix or PREFIX,
        token_file=Path(parts.take_option("token", str(POD_FILES / "token"))),
        tls=_make_tls_context(parts),
        timeout_s=parts.timeout_s(TIMEOUT_S),
    )


def _read_account(parts: AddressParts) -> tuple[str, str] | None:
    """Return the account of an address. The password may be in a file, so that it does not appear
    in lists of processes."""
    file = parts.take_option("password-file")
    if not file:
        return parts.account
    if parts.account is None or parts.account[1]:
        raise UsageError("authority: password-file needs a user without a password: USER@HOST:PORT")
    try:
        password = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise UsageError(f"authority: password-file={file!r}: {error}") from error
    return parts.account[0], password


def _make_tls_context(parts: AddressParts) -> ssl.SSLContext:
    """Make the TLS context from the options `ca` (roots; the system's if absent), `cert` and `key`
    (our own), all PEM files."""
    roots, certificate, key = (
        parts.take_option("ca"),
        parts.take_option("cert"),
        parts.take_option("key"),
    )
    if key and not certificate:
        raise UsageError("authority: key without cert; name both")
    try:
        context = ssl.create_default_context(cafile=roots or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if certificate:
            # Without a password OpenSSL would ask the terminal for one.
            context.load_cert_chain(certificate, key or None, lambda: "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise UsageError(
            f"authority: ca={roots!r}, cert={certificate!r}, key={key!r}: {reason}; readable PEM "
            "files that belong together are expected"
        ) from error
    return context


_MAKERS: Final[dict[str, Callable[[AddressParts], AuthorityEngine]]] = {
    "etcd": _make_etcd_engine,
    "etcds": _make_etcd_engine,
    "s3": _make_s3_engine,
    "kubernetes": _make_kubernetes_engine,
}
