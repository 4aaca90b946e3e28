"""Settings of ports: limits on connections, and TLS under RocketMQ's names."""

from __future__ import annotations

import codecs
import ssl
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, field

from escrowmq.codec.java_properties import ConfError, parse_java_properties
from escrowmq.errors import UsageError
from escrowmq.net.certificate_accounts import (
    SETTING,
    CertificateAccounts,
    parse_certificate_accounts,
)
from escrowmq.net.certificates import (
    ClientAuth,
    Mode,
    ReloadedCertificates,
    TlsFiles,
    load_certificate,
    load_trusted_roots,
)
from escrowmq.net.connection_counts import ConnectionLimits
from escrowmq.net.tls import PortOptions, TlsPolicy

TLS_FILE: Final = "tls.config.file"
_UTF8_MARK: Final = codecs.BOM_UTF8.decode("latin-1")


class ConnectionSettings(msgspec.Struct, kw_only=True):
    """Settings of connections and TLS; RocketMQ's names for TLS are its system properties."""

    connections_max: Annotated[
        int,
        Meta(
            ge=0,
            description="connections to each port; 0: as many as the limit of open files allows",
        ),
    ] = field(default=0, name="escrowConnectionsMax")
    per_address_max: Annotated[
        int, Meta(ge=0, description="connections from one address; 0: no separate limit")
    ] = field(default=0, name="escrowConnectionsPerAddress")
    mode: Annotated[
        Mode,
        Meta(
            description="permissive: TLS and plain connections on one port, if there is "
            "a certificate"
        ),
    ] = field(default="permissive", name="tls.server.mode")
    file: Annotated[
        str, Meta(description="properties file whose tls.* keys override those here")
    ] = field(default="", name=TLS_FILE)
    certificate: Annotated[str, Meta(description="PEM; reloaded when it changes")] = field(
        default="", name="tls.server.certPath"
    )
    key: Annotated[str, Meta(description="PEM; may be in the certificate's file")] = field(
        default="", name="tls.server.keyPath"
    )
    password: Annotated[str, Meta(description="password of the key")] = field(
        default="", name="tls.server.keyPassword"
    )
    makes_certificate: Annotated[
        bool,
        Meta(
            description="without a configured certificate, the gRPC port uses a self-signed "
            "one: it encrypts, and does not prove the server's identity"
        ),
    ] = field(default=True, name="tls.test.mode.enable")
    clients: Annotated[
        ClientAuth,
        Meta(description="whether clients must present certificates: none, optional or require"),
    ] = field(default="none", name="tls.server.need.client.auth")
    checks_clients: Annotated[
        bool, Meta(description="whether clients' certificates are checked")
    ] = field(default=False, name="tls.server.authClient")
    trusted: Annotated[str, Meta(description="PEM of the roots of clients' certificates")] = field(
        default="", name="tls.server.trustCertPath"
    )
    identities: Annotated[
        str,
        Meta(
            description="accounts of clients' certificates: KIND:name=account, or a KIND alone "
            "(CN, DNS, URI, EMAIL), separated by `;`"
        ),
    ] = field(default="", name=SETTING)
    dials_tls: Annotated[bool, Meta(description="a broker calls name servers by TLS")] = field(
        default=False, name="tls.enable"
    )
    client_certificate: str = field(default="", name="tls.client.certPath")
    client_key: str = field(default="", name="tls.client.keyPath")
    client_password: str = field(default="", name="tls.client.keyPassword")
    checks_servers: Annotated[
        bool, Meta(description="with tls.enable: whether name servers' certificates are checked")
    ] = field(default=False, name="tls.client.authServer")
    client_trusted: Annotated[
        str, Meta(description="PEM of the roots of name servers; the system's when empty")
    ] = field(default="", name="tls.client.trustCertPath")

    def __repr__(self) -> str:
        return f"ConnectionSettings({self.mode!r})"  # no password in any log


def read_properties_file(path: str) -> dict[str, str]:
    """Read a properties file as Java does, without the mark that some editors write at the
    beginning of a file: it would become part of the first key, which would have no effect. Raises
    OSError, or ConfError for what are no properties."""
    text = Path(path).read_text(encoding="latin-1")
    return parse_java_properties(text.removeprefix(_UTF8_MARK))


def with_tls_file(found: dict[str, str]) -> dict[str, str]:
    """Return all settings, including those of the file named by `tls.config.file`, which override
    others as in RocketMQ."""
    path = found.get(TLS_FILE)
    if not path:
        return found
    try:
        named = read_properties_file(path)
    except OSError as error:
        raise UsageError(f"{TLS_FILE}={path}: {error.strerror}; name a readable file") from error
    except ConfError as error:
        raise UsageError(f"{TLS_FILE}={path}: {error}") from error
    return found | {name: value.strip() for name, value in named.items() if name.startswith("tls.")}


def make_port_options(
    settings: ConnectionSettings, *, source: str, dials_itself: bool = False
) -> PortOptions:
    """Make the ports' policy from the settings: limits and TLS. Raises UsageError if they
    contradict each other. `dials_itself`: the broker's name server is in this process, with the
    same policy."""
    limits = ConnectionLimits(
        connections_max=settings.connections_max, per_address_max=settings.per_address_max
    )
    try:
        if dials_itself and settings.mode == "enforcing":
            settings = _with_own_tls(settings)
        return PortOptions(
            limits=limits, tls=_tls_policy(settings), identities=_read_identities(settings),
            dials_tls=_dialling_context(settings),
        )  # fmt: skip
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from error


def _with_own_tls(settings: ConnectionSettings) -> ConnectionSettings:
    """Return the settings with TLS for this process's connections to its own port, because the port
    refuses plain ones."""
    if settings.clients == "require" and not settings.client_certificate:
        raise UsageError(
            "the name server requires a certificate of the broker: name one in "
            "tls.client.certPath and keyPath, whose root tls.server.trustCertPath has"
        )
    return msgspec.structs.replace(settings, dials_tls=True)


def _tls_policy(settings: ConnectionSettings) -> TlsPolicy | None:
    if settings.mode == "disabled":
        return None
    if not settings.certificate:
        if settings.mode == "enforcing":
            raise UsageError("tls.server.mode=enforcing needs tls.server.certPath and keyPath")
        return None
    if settings.clients != "none" and not (settings.checks_clients and settings.trusted):
        # RocketMQ would then request a certificate, but accept any.
        raise UsageError(
            f"tls.server.need.client.auth={settings.clients} needs tls.server.authClient=true and "
            "tls.server.trustCertPath: a certificate that is not checked proves nothing"
        )
    files = TlsFiles(
        certificate=settings.certificate,
        key=settings.key,
        password=settings.password,
        trusted=settings.trusted,
        clients=settings.clients,
    )
    return TlsPolicy(mode=settings.mode, certificates=ReloadedCertificates(files))


def _read_identities(settings: ConnectionSettings) -> CertificateAccounts | None:
    if not settings.identities.strip():
        return None
    if settings.clients == "none":
        raise UsageError(
            f"{SETTING} needs tls.server.need.client.auth=optional or require: no client is asked "
            "for a certificate"
        )
    return parse_certificate_accounts(settings.identities)


def _dialling_context(settings: ConnectionSettings) -> ssl.SSLContext | None:
    """Make the TLS context for a broker's connections to name servers. Host names are not verified,
    because addresses are used mostly, and they change; RocketMQ does not verify them anywhere."""
    if not settings.dials_tls:
        return None
    context = ssl.create_default_context()
    context.check_hostname = False
    if not settings.checks_servers:
        context.verify_mode = ssl.CERT_NONE
    elif settings.client_trusted:
        load_trusted_roots(context, settings.client_trusted)
    if settings.client_certificate:
        load_certificate(
            context,
            certificate=settings.client_certificate,
            key=settings.client_key,
            password=settings.client_password,
        )
    return context


def console_tls(settings: ConnectionSettings) -> ssl.SSLContext | None:
    """Return the TLS context with which the console connects to the servers in its own process;
    None for plain connections."""
    if settings.mode != "enforcing" or not settings.certificate:
        return None
    return _dialling_context(msgspec.structs.replace(settings, dials_tls=True))
