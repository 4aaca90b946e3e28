"""How a client speaks TLS."""

from __future__ import annotations

import os
import ssl

import msgspec

from escrowmq.errors import UsageError


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a client believes, and what it shows. Files are PEM.

    >>> tls = escrowmq.Tls(trusted="our-roots.pem", checks_name=False)

    Pass it as `tls=` to any client; True there believes whom the system believes.
    """

    trusted: str | os.PathLike[str] = ""
    """A file with the roots of the servers' certificates; the system's when empty."""
    certificate: str | os.PathLike[str] = ""
    """The client's own, with those between it and a root, for servers that ask for one."""
    key: str | os.PathLike[str] = ""
    """Its private key; may stand in the certificate's file."""
    password: str = ""
    """Of the key."""
    checks_name: bool = True
    """The certificate must be of the host that is called. Brokers tell their addresses as IP
    addresses: their certificates name these, or this is False."""
    verify: bool = True
    """False believes anybody: the bytes are encrypted, for whomever."""

    def __repr__(self) -> str:
        return f"Tls(trusted={self.trusted!r}, certificate={self.certificate!r})"  # no password


TlsSetting = bool | Tls | ssl.SSLContext | None
"""True believes whom the system believes; False and None speak plainly."""


def context_of(setting: TlsSetting) -> ssl.SSLContext | None:
    """The context that a setting means; None for plain bytes. UsageError when a file is no
    good."""
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
        raise _unusable("trusted", tls.trusted, error) from error
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
            raise _unusable("certificate", tls.certificate, error) from error
    return context


def _unusable(name: str, path: object, error: Exception) -> UsageError:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return UsageError(
        f"tls: {name}={str(path)!r}: {reason}; readable PEM files that belong together are "
        "expected, and the key's password if it has one"
    )
