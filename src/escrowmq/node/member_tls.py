"""TLS between the members of a group, from their settings."""

from __future__ import annotations

from typing import Final

from escrowmq.base.group_settings import GroupSettings
from escrowmq.errors import UsageError
from escrowmq.group.frames import GroupFrameKind, RefusalFrame, encode_struct
from escrowmq.net.certificates import ReloadedCertificates, TlsFiles
from escrowmq.net.timeouts import MEMBER_HANDSHAKE_S
from escrowmq.net.tls import NOT_TLS, MemberTlsPolicy

_SILENT_S: Final = 0.5
"""If plain copies are allowed, a connection that is silent for this many seconds is a plain one: a
plain copy waits for the master to send first, while TLS begins with bytes of the copy."""

_REFUSAL: Final = (
    "it lets members in by TLS only; set escrowGroupTls=enforcing, escrowGroupTlsCertPath, "
    "escrowGroupTlsKeyPath and escrowGroupTlsTrustCertPath here too"
)
_PLAIN: Final = (
    "no TLS, and escrowGroupTls=enforcing; if it is a member, set escrowGroupTls there too"
)


def member_tls_policy(settings: GroupSettings, *, source: str) -> MemberTlsPolicy | None:
    """Return the TLS policy for both ends of replication; None if it is plain. Raises UsageError if
    the settings contradict each other."""
    named = {
        "escrowGroupTlsCertPath": settings.tls_certificate,
        "escrowGroupTlsKeyPath": settings.tls_key or settings.tls_certificate,
        "escrowGroupTlsTrustCertPath": settings.tls_trusted,
    }
    if settings.tls == "disabled":
        if settings.tls_certificate or settings.tls_key or settings.tls_trusted:
            raise UsageError(
                f"{source}: {next(name for name, path in named.items() if path)} is set, and "
                "escrowGroupTls=disabled: set escrowGroupTls=enforcing, or name no files"
            )
        return None
    missing = [name for name, path in named.items() if not path]
    if missing:
        raise UsageError(f"{source}: escrowGroupTls={settings.tls} needs {' and '.join(missing)}")
    files = TlsFiles(
        certificate=settings.tls_certificate,
        key=settings.tls_key,
        password=settings.tls_password,
        trusted=settings.tls_trusted,
        clients="require",
        dials=True,
    )
    try:
        certificates = ReloadedCertificates(files)
    except UsageError as error:
        raise UsageError(f"{source}: escrowGroupTls={settings.tls}: {error}") from error
    is_strict = settings.tls == "enforcing"
    return MemberTlsPolicy(
        mode=settings.tls,
        certificates=certificates,
        handshake_s=MEMBER_HANDSHAKE_S,
        explain=explain_tls_failure,
        plain_fault=_PLAIN,
        refusal=encode_struct(GroupFrameKind.REFUSAL, RefusalFrame(_REFUSAL)),
        silent_s=MEMBER_HANDSHAKE_S if is_strict else _SILENT_S,
    )


def explain_tls_failure(reason: str) -> str:
    """Explain, from OpenSSL's reason, why TLS with another member failed, and what to set."""
    if reason == NOT_TLS:
        return "it speaks no TLS; set escrowGroupTls there as it is set here"
    if "PEER_DID_NOT_RETURN_A_CERTIFICATE" in reason:
        return (
            "it shows no certificate; if it is a member, set escrowGroupTlsCertPath and "
            "escrowGroupTlsKeyPath there"
        )
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        return (
            f"its certificate is not taken ({reason.rpartition(': ')[2]}); it must be signed by "
            "the CA in escrowGroupTlsTrustCertPath here, for servers and for clients"
        )
    if "_ALERT_" in reason:
        return (
            f"it does not take this member's certificate ({reason}), as its log says; "
            "escrowGroupTlsCertPath here must be signed by the CA in escrowGroupTlsTrustCertPath "
            "there"
        )
    return f"TLS with it has failed ({reason})"
