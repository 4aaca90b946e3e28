"""TLS settings of a client."""

from __future__ import annotations

import os
import ssl

import msgspec

from escrowmq.errors import UsageError


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """Which certificates a client trusts, and which it presents. Files are PEM.

    >>> tls = escrowmq.Tls(trusted="our-roots.pem", checks_name=False)

    Pass it as `tls=` to any client; True there trusts the system's roots."""

    trusted: str | os.PathLike[str] = ""
    """A file with the root certificates that the servers' certificates must be signed by; the
    system's if empty."""
    certificate: str | os.PathLike[str] = ""
    """A file with the client's own certificate, and intermediate ones, for servers that request
    it."""
    key: str | os.PathLike[str] = ""
    """The file with the client's private key; it may be the certificate's file."""
    password: str = ""
    """The password of the private key."""
    checks_name: bool = True
    """Whether the certificate must match the host that is called. Brokers register IP addresses:
    their certificates must contain these, or set this to False."""
    verify: bool = True
    """False trusts any server: the connection is then encrypted, but not authenticated."""

    def __repr__(self) -> str:
        return f"Tls(trusted={self.trusted!r}, certificate={self.certificate!r})"  # no password


TlsSetting = bool | Tls | ssl.SSLContext | None
"""True trusts the system's root certificates; False and None mean no TLS."""


def make_ssl_context(setting: TlsSetting) -> ssl.SSLContext | None:
    """Make the SSL context for a setting; None for no TLS. Raises UsageError if a file is
    invalid."""
    if setting is None or setting is False:
        return None
    if isinstance(setting, ssl.SSLContext):
        return setting
    tls = Tls() if setting is True else setting
    if not isinstance(tls, Tls):
        raise UsageError(f"tls={setting!r}: True, a Tls or an ssl.SSLContext is expected")
    try:
        context = ssl.create_default_context(cafile=os.fspath(tls.trusted) or None)
    except (OSError, ValueError) as error:
        raise _file_error("trusted", tls.trusted, error) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.checks_name and tls.verify
    if not tls.verify:
        context.verify_mode = ssl.CERT_NONE
    if tls.key and not tls.certificate:
        raise UsageError("tls: a key without a certificate; name both")
    if tls.certificate:
        try:
            # Without a password OpenSSL would ask the terminal for one.
            context.load_cert_chain(tls.certificate, tls.key or None, lambda: tls.password)
        except (OSError, ValueError) as error:
            raise _file_error("certificate", tls.certificate, error) from error
    return context


def _file_error(name: str, path: object, error: Exception) -> UsageError:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return UsageError(
        f"tls: {name}={str(path)!r}: {reason}; readable PEM files that belong together are "
        "expected, and the key's password if it has one"
    )
