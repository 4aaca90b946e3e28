"""Certificates from files, reloaded when the files change."""

from __future__ import annotations

import logging
import os
import ssl
from typing import Final, Literal

import msgspec

from escrowmq.errors import UsageError

_log = logging.getLogger(__name__)

Mode = Literal["disabled", "permissive", "enforcing"]
"""How a port uses TLS. `disabled`: only plain connections; `permissive`: both kinds; `enforcing`:
only TLS."""

ClientAuth = Literal["none", "optional", "require"]
"""Whether clients are asked for a certificate, and whether one is required."""

_CLIENTS: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "require": ssl.CERT_REQUIRED,
}

Stamp = tuple[tuple[int, int, int], ...]
"""The modification time, size and inode of each file, by which a change is detected."""


HTTP2: Final = "h2"
"""The name of HTTP/2 in TLS (ALPN)."""


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """A server's certificate files, and its trusted roots."""

    certificate: str
    """A file with the certificate and intermediate ones, PEM."""
    key: str
    """A file with the private key, PEM; it may be the certificate's file."""
    password: str = ""
    trusted: str = ""
    """A file with the roots of clients' certificates, PEM."""
    clients: ClientAuth = "none"
    dials: bool = False
    """Whether the server also presents this certificate to servers that it connects to, and
    verifies theirs by the same roots."""

    def __repr__(self) -> str:
        return f"TlsFiles({self.certificate!r})"  # no password in any log

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all files."""
        return tuple(dict.fromkeys(filter(None, (self.certificate, self.key, self.trusted))))


def load_certificate(context: ssl.SSLContext, *, certificate: str, key: str, password: str) -> None:
    """Load a certificate and its key into a context. Raises UsageError that names the invalid
    file."""
    for path in (certificate, key):
        if not os.access(path or certificate, os.R_OK):
            raise UsageError(f"{path or certificate!r} cannot be read; name a readable PEM file")
    try:
        # Without a password OpenSSL would ask the terminal for one.
        context.load_cert_chain(certificate, key or None, lambda: password)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"certificate {certificate!r} with key {key or certificate!r}: {_error_reason(error)}; "
            "PEM files that belong together are expected, and the key's password if it has one"
        ) from error


def load_trusted_roots(context: ssl.SSLContext, path: str) -> None:
    """Load trusted roots from a file into a context; raises UsageError if there are none."""
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise UsageError(
            f"trusted certificates {path!r}: {_error_reason(error)}; a PEM file is expected"
        ) from error


def _error_reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)


def make_server_context(files: TlsFiles) -> ssl.SSLContext:
    """Make a server's context from the files; raises UsageError if they are invalid."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A peer that has its keys renewed again and again costs this side more than itself.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    load_certificate(context, certificate=files.certificate, key=files.key, password=files.password)
    # Clients of RocketMQ's remoting protocol name none.
    context.set_alpn_protocols([HTTP2])
    if files.clients != "none":
        load_trusted_roots(context, files.trusted)
        context.verify_mode = _CLIENTS[files.clients]
    return context


def make_dialling_context(files: TlsFiles) -> ssl.SSLContext:
    """Make a context for connecting to servers whose certificates these roots have signed. Host
    names are not verified, because addresses are used mostly, and they change. Raises UsageError if
    a file is invalid."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    load_trusted_roots(context, files.trusted)
    load_certificate(context, certificate=files.certificate, key=files.key, password=files.password)
    return context


class ReloadedCertificates:
    """The TLS contexts for new connections: from the current files, or from the last valid ones."""

    context: ssl.SSLContext
    dialling: ssl.SSLContext | None = None
    """The context for connections to other servers; None unless `TlsFiles.dials`."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._stamp = self._read_stamps()
        self._seen = self._stamp
        self._refused: Stamp | None = None
        self.trouble = ""
        """Why the current files are not used; empty if they are."""
        self._load_contexts()

    def _load_contexts(self) -> None:
        context = make_server_context(self._files)
        if self._files.dials:
            self.dialling = make_dialling_context(self._files)
        self.context = context

    def reload_if_changed(self) -> bool:
        """Reload changed files; return whether that was done. Files are loaded once two polls find
        the same content, because a certificate and its key do not match while they are being
        written. Invalid files change nothing, and are logged once."""
        stamp = self._read_stamps()
        if stamp == self._stamp:
            self._seen, self.trouble = stamp, ""
            return False
        is_settled, self._seen = stamp == self._seen, stamp
        if not is_settled or stamp == self._refused:
            return False
        try:
            self._load_contexts()
        except UsageError as error:
            self._refused, self.trouble = stamp, str(error)
            _log.error("TLS continues with the last valid certificate: %s", error)
            return False
        self._stamp, self._refused, self.trouble = stamp, None, ""
        _log.warning("TLS: new connections get %s from now on", self._files.certificate)
        return True

    def _read_stamps(self) -> Stamp:
        found = []
        for path in self._files.paths:
            try:
                seen = os.stat(path)
                found.append((seen.st_mtime_ns, seen.st_size, seen.st_ino))
            except OSError:
                found.append((-1, -1, -1))
        return tuple(found)
